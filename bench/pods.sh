#!/bin/sh
# Pods a second of `windlass run`, beside xargs, GNU parallel and crun in the same run, and the bars that must be reached.
# usage: bench/pods.sh [pods on the host] [pods of an image]
set -eu
cd "$(dirname "$0")/.."
pods=${1:-10000} images=${2:-300}
for program in parallel crun; do
    command -v $program > /dev/null || apt-get install --yes --no-install-recommends $program
done
[ -x /bin/busybox ] || apt-get install --yes --no-install-recommends busybox-static
# As for container images.
cargo build --profile dist --package windlass
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
missed=0

now() { date +%s%N; }

# millis COMMAND...: how long it takes
millis() {
    since=$(now)
    "$@" > "$place/out" 2>&1 || { cat "$place/out" >&2; exit 1; }
    echo $((($(now) - since) / 1000000))
}

# bar NAME VALUE MAX: both in thousandths
bar() {
    echo "$1: $(($2 / 1000)).$(printf %03d $(($2 % 1000))) × (bar $(($3 / 1000)).$(printf %03d $(($3 % 1000))))"
    [ "$2" -le "$3" ] || missed=1
}

# job NAME COMPLETIONS PARALLELISM IMAGE COMMAND
job() {
    cat > "$place/$1.yaml" <<EOF
apiVersion: batch/v1
kind: Job
metadata:
  name: $1
spec:
  completions: $2
  parallelism: $3
  podFailurePolicy:
    rules:
    - action: FailJob
      onExitCodes:
        operator: In
        values: [42]
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: $4
        command: $5
EOF
}

# In turns, and the median of three: a machine that others use as well is a tenth faster or slower from one minute to the next.
median() { sort -n "$place/$1" | sed -n 2p; }
job host "$pods" 2 host '["true"]'
for _ in 1 2 3; do
    millis target/dist/windlass run "$place/host.yaml" >> "$place/ours"
    millis sh -c "seq $pods | xargs -P2 -n1 true" >> "$place/xargs"
    millis sh -c "seq $pods | parallel -j2 true" >> "$place/parallel"
done
ours=$(median ours) xargs=$(median xargs) parallel=$(median parallel)
echo "$pods × true, two at a time: windlass $ours ms, xargs -P2 $xargs ms, parallel -j2 $parallel ms (medians of three)"
bar "as long as xargs" $((ours * 1000 / xargs)) 2000
bar "as long as parallel" $((ours * 1000 / parallel)) 333

# An image as docker save writes it, and a bundle of the same files for crun.
mkdir -p "$place/bundle/rootfs/bin" "$place/images" "$place/save"
cp /bin/busybox "$place/bundle/rootfs/bin/busybox"
ln -s busybox "$place/bundle/rootfs/bin/true"
tar -C "$place/bundle/rootfs" -cf "$place/save/layer.tar" bin
layer=$(sha256sum "$place/save/layer.tar" | cut -d' ' -f1)
echo "{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:$layer\"]}}" \
    > "$place/save/config.json"
echo '[{"Config":"config.json","RepoTags":["bench.local/busybox:1"],"Layers":["layer.tar"]}]' > "$place/save/manifest.json"
tar -C "$place/save" -cf "$place/images/busybox.tar" manifest.json config.json layer.tar
(cd "$place/bundle" && crun spec && sed -i 's/"sh"/"true"/; s/"terminal": true/"terminal": false/' config.json)
job image "$images" 1 bench.local/busybox:1 '["true"]'
# Where both versions of control groups are mounted crun works only without the second.
loop="
    ! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified
    for n in \$(seq $images); do crun --cgroup-manager=disabled run -b '$place/bundle' bench-\$\$-\$n; done"
for _ in 1 2 3; do
    millis target/dist/windlass run --image-dir "$place/images" "$place/image.yaml" >> "$place/ours-image"
    millis unshare --mount sh -ec "$loop" >> "$place/crun"
done
ours=$(median ours-image) crun=$(median crun)
echo "$images × an image, one at a time: windlass $ours ms, crun run in a loop $crun ms (medians of three)"
bar "as long as crun" $((ours * 1000 / crun)) 1300

# From the last moment of a pod until the command has told that the Job failed and has ended itself.
job fails 1 1 host "[sh, -c, \"date +%s%N > $place/ended; exit 42\"]"
for _ in $(seq 100); do
    target/dist/windlass run "$place/fails.yaml" 2> "$place/told" && exit 1
    echo $((($(now) - $(cat "$place/ended")) / 1000000)) >> "$place/lags"
done
echo "exit of a pod → Job Failed and the command ended: $(sort -n "$place/lags" | sed -n 50p) ms at the median"
lag=$(sort -n "$place/lags" | sed -n 99p)
echo "the same at p99: $lag ms (bar 50 ms)"
[ "$lag" -le 50 ] || missed=1
[ "$missed" = 0 ] || { echo "a bar was missed" >&2; exit 1; }
