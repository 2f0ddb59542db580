"""Runs in the environment of pfb-imaging: answers every line `NAME` with the CPU seconds of one call.

    python peer.py NPIX BASIS,... NBAND

It needs nothing of ours, so that the two may have different versions of everything.
"""

import ctypes
import glob
import os
import sys
import time

NLEVELS, RADIUS, SIGMA, TAU = 3, 0.5, 0.7, 0.05


def main(npix, bases, nband):
    """Serve, after what has to come before the imports."""
    os.environ.update(NUMBA_NUM_THREADS="1", OMP_NUM_THREADS="1")
    # The threading layer that it asks for is not where numba looks, but any that is loaded will do.
    for library in glob.glob(sys.prefix + "/lib/libtbb.so.12"):
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    import numpy as np
    from pfb_imaging.operators.psi import PsiNocopyt
    from pfb_imaging.opt.primal_dual import _nb_any_nonzero, _nb_extrapolate_dual, _nb_norm_diff, _nb_primal_step
    from pfb_imaging.prox.positivity import positivity
    from pfb_imaging.prox.prox_21m import dual_update_numba_fast

    x = np.random.default_rng(0).standard_normal((nband, npix, npix))
    psi = PsiNocopyt(nband, npix, npix, bases, NLEVELS, 1)
    v, previous = (np.zeros((nband, len(bases), psi.nxmax, psi.nymax)) for _ in range(2))
    weight = np.ones(v.shape[1:])
    before, image = x.copy(), np.zeros_like(x)

    def iteration():
        psi.dot(before, v)
        dual_update_numba_fast(previous, v, RADIUS, sigma=SIGMA, weight=weight)
        _nb_extrapolate_dual(v, previous)
        psi.hdot(previous, image)
        _nb_primal_step(x, before, image, TAU)
        positivity(x)
        _nb_any_nonzero(x)
        _nb_norm_diff(x, before)
        np.copyto(before, x)
        np.copyto(previous, v)

    calls = {"dot": lambda: psi.dot(x, v), "hdot": lambda: psi.hdot(v, image), "iteration": iteration}
    for call in calls.values():
        call()
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.process_time()
        calls[line.strip()]()
        print(time.process_time() - began, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3]))
