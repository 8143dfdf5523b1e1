"""What all kernels stand on: build, launch, checks, timing, the emulator."""
