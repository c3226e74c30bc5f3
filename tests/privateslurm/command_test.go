// SPDX-License-Identifier: Apache-2.0

package privateslurm

import (
	"slices"
	"strings"
	"testing"
)

func TestJobFields(t *testing.T) {
	job := jobFields(`JobId=7 JobName=a b UserId=alice(60001) Reason=rho 1.43, rank 3 of 12 Dependency=(null) TRES=cpu=1,gres/gpu=2 Comment=themis: app=x runtime=3h Power=`)
	for key, want := range map[string]string{
		"JobId": "7", "JobName": "a b", "Reason": "rho 1.43, rank 3 of 12", "TRES": "cpu=1,gres/gpu=2",
		"Comment": "themis: app=x runtime=3h", "Power": "",
	} {
		if job[key] != want {
			t.Errorf("%s is %q, want %q", key, job[key], want)
		}
	}
	if len(job) != 8 {
		t.Errorf("%d fields, want 8: %v", len(job), job)
	}
}

func TestJoinEnv(t *testing.T) {
	base := []string{"A=1", "LD_PRELOAD=libnss_wrapper.so"}
	got := joinEnv(base, []string{"LD_PRELOAD=libasan.so.8", "A=2", "B=3"})
	want := []string{"A=2", "LD_PRELOAD=libasan.so.8:libnss_wrapper.so", "B=3"}
	if !slices.Equal(got, want) {
		t.Errorf("joinEnv gives %v, want %v", got, want)
	}
	if base[0] != "A=1" {
		t.Error("joinEnv changed its argument")
	}
}

func TestConfLinesReplaceOurs(t *testing.T) {
	c := &Cluster{Dir: "/d", host: "h", build: "/b", stockPlugins: "/s", self: currentUser(),
		opt: Options{Conf: "minjobage=5\nPartitionName=low Nodes=n1", Themis: true, Nodes: 1}.withDefaults()}
	text := c.slurmConf([]int{1, 2})
	for line, want := range map[string]bool{
		"MinJobAge=600": false, "minjobage=5": true, "SelectType=select/themis": true, "SelectType=select/cons_tres": false,
		"PluginDir=/b/lib:/s": true, "PartitionName=low Nodes=n1": true, "SlurmctldPort=1": true,
		"NodeName=n1 NodeHostname=h NodeAddr=127.0.0.1 Port=2 Gres=gpu:8": true,
	} {
		if got := containsLine(text, line); got != want {
			t.Errorf("line %q is there: %v, want %v", line, got, want)
		}
	}
}

func containsLine(text, line string) bool {
	return slices.Contains(strings.Split(text, "\n"), line)
}
