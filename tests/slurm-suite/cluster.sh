# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by run: the private cluster. Uses BUILD (the project's build folder),
# base (the cluster's own, temporary folder), out (for logs), mode (stock or
# themis) and stock (the folder of the installed plugins), and defines
# make_cluster, tidy and remove_cluster.

nodes=(n1 n2 n3 n4)
me=$(id -un)
host=$(hostname -s)

# ---- set-up ---------------------------------------------------------------

# The tests want a Slurm installed under one prefix, as `make install` does.
make_prefix() {
  local lib=${stock%/*} l
  mkdir -p "$base/prefix/lib64"
  ln -s /usr/bin "$base/prefix/bin"
  ln -s /usr/sbin "$base/prefix/sbin"
  ln -s /usr/include "$base/prefix/include"
  ln -s "$lib" "$base/prefix/lib"
  ln -s "$stock" "$base/prefix/lib64/slurm"
  for l in "$lib"/libslurm.so*; do ln -s "$l" "$base/prefix/lib64/"; done
}

# Five free ports in a row, below those of outgoing connections.
free_ports() {
  local first p
  for _ in $(seq 200); do
    first=$((10000 + RANDOM % 20000))
    for p in $(seq "$first" $((first + 4))); do
      if (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null; then continue 2; fi
    done
    echo "$first"
    return
  done
  return 1
}

# slurm.conf, gres.conf (the GPUs are links to /dev/null) and the names that
# nss_wrapper shows: this host is a loopback address, whatever DNS says.
write_conf() {
  local port plugins i
  port=$(free_ports) || die "no free ports"
  plugins='SelectType=select/cons_tres\nPriorityType=priority/multifactor'
  if [[ $mode == themis ]]; then
    plugins="PluginDir=$BUILD/lib:$stock\nSelectType=select/themis\nPriorityType=priority/themis\nJobSubmitPlugins=themis"
    cp "$here/themis.toml" "$base/themis.toml"
  fi
  sed -e "s#@BASE@#$base#g; s#@OUT@#$out#g; s#@HOST@#$host#g; s#@USER@#$me#g; s#@PLUGINS@#$plugins#" \
    -e "s#@PORT0@#$port#; s#@PORT1@#$((port + 1))#; s#@PORT2@#$((port + 2))#; s#@PORT3@#$((port + 3))#; s#@PORT4@#$((port + 4))#" \
    "$here/slurm.conf.in" >"$base/conf/slurm.conf"
  for i in {0..7}; do ln -sfn /dev/null "$base/dev/gpu$i"; done
  printf '%s\n' "Name=gpu File=$base/dev/gpu[0-3] Cores=0-7" "Name=gpu File=$base/dev/gpu[4-7] Cores=8-15" \
    "Name=craynetwork Count=4" >"$base/conf/gres.conf"
  echo CgroupPlugin=cgroup/v1 >"$base/conf/cgroup.conf" # the other ones need rights
  printf '127.0.0.1 localhost\n127.0.0.1 %s\n' "$host" >"$base/hosts"
  rm -rf "$base/conf.orig"
  cp -a "$base/conf" "$base/conf.orig"
}

# Long lines that a terminal of 80 columns wraps confuse some tests. And about
# 45 tests skip unless `scontrol show config` names exactly the stock
# plugins that ours wrap. A skip is no pass: they get a scontrol that does.
write_test_settings() {
  cat >"$base/scontrol" <<'SCONTROL'
#!/bin/bash
if [[ "${1:-} ${2:-}" == "show config" || "${2:-} ${3:-}" == "show config" ]]; then
  /usr/bin/scontrol "$@" | sed -E 's#^(SelectType +=).*#\1 select/cons_tres#; s#^(PriorityType +=).*#\1 priority/multifactor#'
  exit "${PIPESTATUS[0]}"
fi
exec /usr/bin/scontrol "$@"
SCONTROL
  chmod 755 "$base/scontrol"
  printf 'set %s\n' "scontrol $base/scontrol" "slurm_dir $base/prefix" "src_dir $BUILD/slurm-src" "build_dir $BUILD/slurm-build" \
    "testsuite_shared_dir $base/shared" "testsuite_colorize false" "testsuite_cleanup_on_failure true" \
    "max_job_delay 60" 'stty_init "columns 250"' >"$base/globals.local"
  printf '%s\n' "SlurmSourceDir=$BUILD/slurm-src" "SlurmBuildDir=$BUILD/slurm-build" "SlurmInstallDir=$base/prefix" \
    "SlurmConfigDir=$base/conf" >"$base/testsuite.conf"
}

set_environment() {
  export SLURM_CONF=$base/conf/slurm.conf LANG=C.UTF-8
  export SLURM_LOCAL_GLOBALS_FILE=$base/globals.local SLURM_TESTSUITE_CONF=$base/testsuite.conf
  export LD_PRELOAD=libnss_wrapper.so NSS_WRAPPER_HOSTS=$base/hosts
  export NSS_WRAPPER_PASSWD=/etc/passwd NSS_WRAPPER_GROUP=/etc/group
  export THEMIS_BIN=$BUILD/bin/themis THEMIS_CONFIG=$base/themis.toml THEMIS_STATE=$base/themis
  local v
  for v in ${!SLURM_JOB*} ${!SBATCH_*} ${!SALLOC_*} ${!SQUEUE_*}; do unset "$v"; done
}

# ---- daemons --------------------------------------------------------------

declare -A pids=()

# launch NAME COMMAND... as our child, in the foreground, without our files;
# it dies with this script.
launch() {
  local name=$1
  shift
  (
    for fd in /proc/"$BASHPID"/fd/*; do
      fd=${fd##*/}
      if ((fd > 2)); then eval "exec $fd>&-"; fi
    done
    exec setpriv --pdeathsig KILL setsid "$@" </dev/null >"$out/$name.out" 2>&1
  ) &
  pids[$name]=$!
}

end() { # NAME...
  local name
  for name in "$@"; do kill "${pids[$name]:-}" 2>/dev/null; done
  for name in "$@"; do
    [[ -n ${pids[$name]:-} ]] || continue
    for _ in $(seq 60); do
      kill -0 "${pids[$name]}" 2>/dev/null || break
      sleep .5
    done
    kill -9 "${pids[$name]}" 2>/dev/null
    wait "${pids[$name]}" 2>/dev/null
    unset "pids[$name]"
  done
}

idle() { [[ $(timeout 5 sinfo -h -N -p debug -o %T 2>/dev/null | grep -cx idle) == "${#nodes[@]}" ]]; }

# start_cluster starts one without jobs; a port that was taken meanwhile ends
# slurmctld, so another try takes others.
start_cluster() {
  local n
  if [[ -z ${pids[munged]:-} ]]; then
    launch munged munged --foreground --force --num-threads=2 --socket="$base/run/munge.sock" --key-file="$base/run/munge.key" \
      --pid-file="$base/run/munged.pid" --log-file="$out/munged.log" --seed-file="$base/run/munge.seed"
  fi
  for _ in 1 2 3; do
    rm -rf "${base:?}"/{state,spool,themis}
    mkdir -p "$base/state" "$base/spool"
    launch slurmctld slurmctld -D
    for n in "${nodes[@]}"; do launch "slurmd.$n" slurmd -D -N "$n"; done
    for _ in $(seq 80); do
      idle && return
      kill -0 "${pids[slurmctld]}" 2>/dev/null || break
      sleep .5
    done
    stop_cluster
    write_conf
  done
  tail -n 5 "$out/slurmctld.out" >&2
  die "no cluster: see $out"
}

stop_cluster() {
  timeout 10 scancel -u "$me" >/dev/null 2>&1
  sleep 1
  end slurmctld "${nodes[@]/#/slurmd.}"
}

make_cluster() {
  base=$(mktemp -d /tmp/ss.XXXX) || die "no temporary folder"
  chmod 755 "$base"
  mkdir -p "$base"/{run,conf,dev,shared}
  chmod 1777 "$base/shared"
  head -c 128 /dev/urandom >"$base/run/munge.key"
  chmod 600 "$base/run/munge.key"
  make_prefix
  write_conf
  write_test_settings
  set_environment
  start_cluster
}

remove_cluster() {
  [[ -n ${base:-} ]] || return
  stop_cluster
  end munged
  cd /
  rm -rf "$base"
  base=
}

# tidy makes the cluster idle and its configuration ours for the next test.
tidy() {
  local r i
  timeout 10 scancel -u "$me" >/dev/null 2>&1
  for r in $(timeout 5 scontrol -o show res 2>/dev/null | sed -n 's/^ReservationName=\([^ ]*\).*/\1/p'); do
    scontrol delete reservation "$r" >/dev/null 2>&1
  done
  if ! diff -rq "$base/conf.orig" "$base/conf" >/dev/null; then
    rm -rf "$base/conf"
    cp -a "$base/conf.orig" "$base/conf"
    scontrol reconfigure
  fi
  for i in $(seq 60); do
    if idle && [[ -z $(squeue -h 2>/dev/null) ]]; then return; fi
    if ((i == 24)); then scontrol update nodename=n[1-4] state=resume >/dev/null 2>&1; fi
    sleep .5
  done
  stop_cluster
  start_cluster
}
