// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"themis/tests/privateslurm"
)

// TestSlurmOptions: everything that Slurm knows still holds for GPU jobs.
func TestSlurmOptions(t *testing.T) {
	c := start(t, privateslurm.Options{Conf: `Licenses=lic1:1
PartitionName=a Nodes=n[1-2]
PartitionName=b Nodes=n[3-4]
PriorityWeightAge=1000`, GPUTypes: []string{"a100", "v100"}})
	run(t, c, "scontrol", "update", "nodename=n1", "availablefeatures=fa", "activefeatures=fa")
	run(t, c, "scontrol", "update", "nodename=n2", "availablefeatures=fb", "activefeatures=fb")
	on := func(want ...string) func(*testing.T, map[string]string) {
		return func(t *testing.T, j map[string]string) {
			for _, w := range want {
				if j["NodeList"] == w {
					return
				}
			}
			t.Errorf("ran on %s, want %v", j["NodeList"], want)
		}
	}
	tres := func(want string) func(*testing.T, map[string]string) {
		return func(t *testing.T, j map[string]string) {
			if got := j["NumNodes"]; got != want {
				t.Errorf("%s nodes, want %s", got, want)
			}
		}
	}
	any := func(*testing.T, map[string]string) {}
	cases := []struct {
		name  string
		args  []string
		check func(*testing.T, map[string]string)
	}{
		{"gpus", []string{"--gpus=4"}, any}, // on several nodes if the others leave no four on one
		{"gpus on one node", []string{"--gpus=4", "-N1"}, tres("1")},
		{"gpus over nodes", []string{"--gpus=12", "-N2"}, tres("2")},
		{"gpus-per-node", []string{"--gpus-per-node=3", "-N2"}, tres("2")},
		{"gpus-per-task", []string{"--gpus-per-task=2", "-n3"}, any},
		{"gpus-per-socket", []string{"--gpus-per-socket=2", "--sockets-per-node=2", "-N1", "-n2", "--ntasks-per-socket=1"}, any},
		{"cpus-per-gpu", []string{"--gpus=2", "--cpus-per-gpu=2"}, any},
		{"mem-per-gpu", []string{"--gpus=2", "--mem-per-gpu=200"}, any},
		{"node range", []string{"-N1-3", "--gres=gpu:2"}, any},
		{"exclusive", []string{"--exclusive", "--gres=gpu:1"}, any},
		{"constraint", []string{"--constraint=fb", "--gres=gpu:1"}, on("n2")},
		{"exclude", []string{"--exclude=n[1-3]", "--gres=gpu:1"}, on("n4")},
		{"nodelist", []string{"--nodelist=n3", "--gres=gpu:1"}, on("n3")},
		{"typed", []string{"--gres=gpu:v100:2"}, on("n2", "n4")},
		{"two partitions", []string{"-p", "a,b", "--gres=gpu:8", "-N2"}, on("n[1-2]", "n[3-4]")},
		{"licence", []string{"--licenses=lic1", "--gres=gpu:1"}, any},
		{"begin", []string{"--begin=now+2", "--gres=gpu:1"}, any},
	}
	ids := make([]string, len(cases))
	for i, k := range cases {
		ids[i] = sbatch(t, c, "alice", "sleep 1", append(k.args, "-t5", "-J", strings.ReplaceAll(k.name, " ", "-"))...)
	}
	for i, k := range cases {
		t.Run(k.name, func(t *testing.T) { k.check(t, wait(t, c, ids[i], completed)) })
	}

	t.Run("reservation", func(t *testing.T) {
		run(t, c, "scontrol", "create", "reservation", "reservationname=r1", "starttime=now", "duration=10", "nodes=n4", "users=alice,root,"+owner(c))
		defer run(t, c, "scontrol", "delete", "reservationname=r1")
		in := sbatch(t, c, "alice", "sleep 1", "--reservation=r1", "--gres=gpu:1", "-t5")
		out := sbatch(t, c, "alice", "sleep 1", "--gres=gpu:8", "-N3", "-t5")
		on("n4")(t, wait(t, c, in, completed))
		on("n[1-3]")(t, wait(t, c, out, completed))
	})
	t.Run("dependency", func(t *testing.T) {
		first := sbatch(t, c, "alice", "sleep 2", "--gres=gpu:1", "-t5")
		second := sbatch(t, c, "alice", "sleep 1", "--gres=gpu:1", "--dependency=afterok:"+first, "-t5")
		if j, _ := c.Job(second); !strings.HasPrefix(j["Reason"], "Dependency") {
			t.Errorf("reason %s", j["Reason"])
		}
		a, b := wait(t, c, first, completed), wait(t, c, second, completed)
		if b["StartTime"] < a["EndTime"] {
			t.Errorf("started at %s, before %s", b["StartTime"], a["EndTime"])
		}
	})
	t.Run("hold and release", func(t *testing.T) {
		id := sbatch(t, c, "alice", "sleep 1", "--hold", "--gres=gpu:1", "-t5")
		time.Sleep(2 * time.Second)
		if j, _ := c.Job(id); j["JobState"] != "PENDING" || j["Priority"] != "0" {
			t.Errorf("a held job is %s with priority %s", j["JobState"], j["Priority"])
		}
		run(t, c, "scontrol", "release", id)
		wait(t, c, id, completed)
	})
	t.Run("het job", func(t *testing.T) {
		id := sbatch(t, c, "alice", "#!/bin/bash\n#SBATCH -n1 --gres=gpu:8 -N1 -t5\n#SBATCH hetjob\n#SBATCH -n1 --gres=gpu:2 -t5\n#SBATCH hetjob\n#SBATCH -n2 -t5\nsleep 1\n")
		wait(t, c, id+"+0", completed)
	})
	t.Run("srun and salloc", func(t *testing.T) {
		for _, args := range [][]string{{"srun", "--gres=gpu:2", "-t5", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"}, {"salloc", "--gres=gpu:2", "-t5", "sh", "-c", "srun sh -c 'echo $CUDA_VISIBLE_DEVICES'"}} {
			ctx, cancel := context.WithTimeout(context.Background(), patient)
			out, err := c.As("alice").Run(ctx, args[0], args[1:]...)
			cancel()
			if err != nil || strings.Count(strings.TrimSpace(out), ",") != 1 {
				t.Errorf("%s: %v, GPUs %q", args[0], err, out)
			}
		}
	})
	t.Run("test-only", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		if out, err := c.As("alice").Run(ctx, "sbatch", "--test-only", "--gres=gpu:2", "--wrap=true"); err != nil {
			t.Errorf("%v %s", err, out)
		}
	})
	t.Run("update a pending job", func(t *testing.T) {
		id := sbatch(t, c, "alice", "sleep 1", "--hold", "--gres=gpu:1", "-t5")
		run(t, c, "scontrol", "update", "jobid="+id, "gres=gpu:2", "reqnodelist=n2", "timelimit=3")
		run(t, c, "scontrol", "release", id)
		on("n2")(t, wait(t, c, id, completed))
	})
	t.Run("update and suspend a running job", func(t *testing.T) {
		id := sbatch(t, c, "alice", "sleep 4", "--gres=gpu:1", "-t5")
		wait(t, c, id, running)
		run(t, c, "scontrol", "update", "jobid="+id, "timelimit=4", "comment=themis: runtime=1m")
		run(t, c, "scontrol", "suspend", id)
		wait(t, c, id, privateslurm.In("SUSPENDED"))
		run(t, c, "scontrol", "resume", id)
		wait(t, c, id, completed)
	})
	t.Run("larger than the cluster", func(t *testing.T) {
		if _, err := c.Sbatch("alice", "true", "--gres=gpu:9"); err == nil || !strings.Contains(err.Error(), "configuration is not available") {
			t.Errorf("9 GPUs of a node with 8: %v", err)
		}
	})
	checkLeases(t, c, 8)
}

func owner(c *privateslurm.Cluster) string {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	out, _ := c.Run(ctx, "id", "-un")
	return strings.TrimSpace(out)
}

// TestCPUJobsNeverWait: with GPU jobs waiting in the same partition, in one of
// a higher tier too, a CPU job starts at once.
func TestCPUJobsNeverWait(t *testing.T) {
	c := start(t, privateslurm.Options{Nodes: 2, Conf: "SchedulerParameters=bf_interval=30,sched_interval=2,sched_min_interval=0,batch_sched_delay=0"})
	big := sbatch(t, c, "alice", "sleep 100", "-N2", "--gres=gpu:8", "-t9")
	wait(t, c, big, running)
	for range 5 {
		sbatch(t, c, "bob", "sleep 10", "--gres=gpu:2", "-t5")
	}
	time.Sleep(2 * time.Second)
	begin := time.Now()
	for i := range 3 {
		wait(t, c, sbatch(t, c, "carol", "true", "-n1", fmt.Sprintf("-J cpu%d", i)), completed)
	}
	if d := time.Since(begin); d > 25*time.Second {
		t.Errorf("three CPU jobs took %s: the backfill had to start them", d)
	}
}
