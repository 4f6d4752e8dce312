"""The peers, each a module with a PEER whose run() does one case. OURS is what ratios are about."""
from peers import memcpy, tcp, ucx, ucx_cma, ucx_shm, verbena

OURS = verbena.PEER
OTHERS = (ucx.PEER, ucx_cma.PEER, ucx_shm.PEER, tcp.PEER, memcpy.PEER)
ALL = (OURS, *OTHERS)
