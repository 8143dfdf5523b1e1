"""What GPUs are and can hold: published figures as data, with where each is from.

`gpu_specs.tsv` has one row a product, `cc_limits.tsv` one a compute capability of NVIDIA. `unknown` means that no
source was found, `n/a` that the hardware lacks the feature. The last column of each row names its sources: headers of
CUDA 13.0 for the limits, vendors' data sheets and tables that quote them for the rates.
"""

from __future__ import annotations
