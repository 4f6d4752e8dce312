"""Programs whose packages are large: only in `make compat`."""
from row import ROOT, one
from rows import mpi
from rows.pair import AS_ROOT_ONLY

DISK = "iqn.2026-11.test:disk"
US = "iqn.2026-11.test:us"  # tgtd admits over iSER only whom it knows by name
# Its control socket is in {tmp}: another tgtd of this machine is none of ours.
ISER = f"""
export TGT_IPC_SOCKET={{tmp}}/socket
head -c 1048576 /dev/zero >{{tmp}}/disk
{{verbena}} run -- tgtd -f --iscsi portal=10.77.0.1:3261 --iser port=3260 >{{tmp}}/tgtd.log 2>&1 &
for i in $(seq 100); do
  tgtadm --lld iser --mode target --op new --tid 1 --targetname {DISK} 2>/dev/null && break
  sleep 0.1
done
tgtadm --lld iser --mode logicalunit --op new --tid 1 --lun 1 --backing-store {{tmp}}/disk
tgtadm --lld iser --mode target --op bind --tid 1 --initiator-address ALL
tgtadm --lld iser --mode target --op bind --tid 1 --initiator-name {US}
for tool in iscsi-inq iscsi-readcapacity16; do
  timeout 20 {{verbena}} run -- $tool -i {US} iser://10.77.0.1:3260/{DISK}/1 || {{ cat {{tmp}}/tgtd.log; exit 1; }}
done
timeout 20 {{verbena}} run -- stdbuf -oL iscsi-ls -i {US} 'iscsi://10.77.0.1:3260/?iser' || true  # see the remark
kill -9 $!
"""

ROWS = [
    one("tgtd-iser", "tgtd", "--iser port=3260", "a disk over iSER: iscsi-inq, iscsi-readcapacity16, iscsi-ls", ISER,
        package="tgt", needs=("tgtadm", "iscsi-inq"), timeout_s=90,
        must=(r"^Product:VIRTUAL-DISK", r"^Total size:1048576$", rf"^Target:{DISK} "), users=(ROOT,),
        remark="tgtd is for root only; iscsi-ls lists the target over iSER (?iser), then crashes in libiscsi's own code"),
    one("qemu-migrate", "qemu-system-x86_64", "-incoming rdma:10.77.0.1:4444", "a running guest moves to another QEMU",
        ("{python}", "{snippets}/qemu_migrate.py", "{verbena}", "run", "--"), package="qemu-system-x86", timeout_s=120,
        must=(r"^before: running and paused \(inmigrate\)$", r"^Migration status: completed$",
              r"^after: paused \(postmigrate\) and running$"),
        **AS_ROOT_ONLY),
    *mpi.ROWS,
]
