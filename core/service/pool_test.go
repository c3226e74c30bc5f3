// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"themis/bridge"
	"themis/bridge/pb"
)

// side is a host with nodes of 8 GPUs and a waiting job of so many on each.
func side(kind string, nodes []string, gpus ...uint32) *pb.Snapshot {
	s := &pb.Snapshot{Host: kind, Cluster: kind + "1"}
	for _, n := range nodes {
		s.Nodes = append(s.Nodes, &pb.Node{Name: n, Cpus: 32, Gpus: []*pb.GPUs{{Total: 8}}})
	}
	for i, g := range gpus {
		s.Jobs = append(s.Jobs, &pb.Job{Id: fmt.Sprintf("%s_%d", kind, i), User: kind + "user", Uid: 1000, SubmitS: time.Now().Unix() - 60,
			NodesMin: 1, GpusPerNode: g, AnyNode: true, LimitS: 3600})
	}
	return s
}

// start lets the jobs run that are granted GPUs.
func start(s *pb.Snapshot, d *pb.Directives) {
	for _, g := range d.Grants {
		for _, j := range s.Jobs {
			if j.Id != g.Job {
				continue
			}
			j.State, j.StartS = pb.Job_RUNNING, time.Now().Unix()
			for k, name := range g.Nodes {
				for i, n := range s.Nodes {
					if n.Name == name {
						n.Gpus[0].Used += g.Gpus[k]
						j.On = append(j.On, &pb.Share{Node: uint32(i), Gpus: g.Gpus[k]})
					}
				}
			}
		}
	}
}

// TestOnePool: a machine that is in both clusters is one node, and for one of them
// at a time; each host is told of its own jobs, in its own names.
func TestOnePool(t *testing.T) {
	s := openAt(t, t.TempDir())
	defer s.Close()
	slurm, yarn := side("slurm", []string{"n1", "n2"}, 4, 4), side("yarn", []string{"n1.example.org:8041", "n3.example.org:8041"}, 8, 8)
	start(slurm, observe(t, s, slurm)) // on one node or two
	before := observe(t, s, slurm)
	d := observe(t, s, yarn)
	var st bridge.Status
	view(t, s, 0, &pb.View{Name: "status"}, &st)
	if st.Nodes != 3 || st.GPUs != 24 || st.Cluster != "slurm1+yarn1" || len(st.Hosts) != 2 {
		t.Errorf("the pool is %+v", st)
	}
	free := map[string]bool{"n1.example.org:8041": slurm.Nodes[0].Gpus[0].Used == 0, "n3.example.org:8041": true}
	if want := len(free); !free["n1.example.org:8041"] {
		want--
		if len(d.Grants) != want {
			t.Errorf("YARN is granted %v", d.Grants)
		}
	}
	for _, g := range d.Grants {
		if !free[g.Nodes[0]] || !strings.HasPrefix(g.Job, "yarn_") {
			t.Errorf("YARN is granted %v", g)
		}
	}
	start(yarn, d)
	observe(t, s, yarn)
	if after := observe(t, s, slurm); after.Seq != before.Seq {
		t.Errorf("what YARN does is news to Slurm: %v", after)
	}
	if _, err := s.Observe(context.Background(), &pb.Snapshot{Host: "yarn", Cluster: "another"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a second YARN cluster: %v", err)
	}
}

// TestPoolAfterRestart: a core that starts again waits for the other host, whose
// jobs it knows; a host that stays away keeps its nodes.
func TestPoolAfterRestart(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir)
	slurm, yarn := side("slurm", []string{"n1"}, 4), side("yarn", []string{"n1"}, 8)
	yarn.Jobs[0].SubmitS -= 1000
	start(yarn, observe(t, s, yarn))
	observe(t, s, slurm)
	observe(t, s, yarn)
	s.Close()

	s = openAt(t, dir)
	if _, err := s.Observe(context.Background(), slurm); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "--forget yarn") {
		t.Errorf("without a word of YARN: %v", err)
	}
	observe(t, s, yarn)
	if d := observe(t, s, slurm); len(d.Grants) > 0 {
		t.Errorf("GPUs that YARN uses are granted: %v", d.Grants)
	}
	s.Close()

	s = openAt(t, dir)
	s.pool.patient = 0 // it has been waited for
	slurm.Jobs[0].State = pb.Job_PENDING
	s.pool.patient = time.Nanosecond
	if d := observe(t, s, slurm); len(d.Grants) > 0 {
		t.Errorf("a node of a silent host is granted: %v", d.Grants)
	}
	s.pool.patient = time.Hour
	var leases []bridge.Lease
	view(t, s, 0, &pb.View{Name: "leases"}, &leases)
	if len(leases) != 1 || leases[0].Job != "yarn_0" {
		t.Errorf("leases while YARN is silent: %+v", leases)
	}
	if err := s.led.ForgetHost("hadoop"); err == nil || !strings.Contains(err.Error(), `"slurm, yarn"`) {
		t.Errorf("forget an unknown host: %v", err)
	}
	if err := s.led.ForgetHost("yarn"); err != nil {
		t.Fatal(err)
	}
	s.Close()

	s = openAt(t, dir)
	defer s.Close()
	if d := observe(t, s, slurm); len(d.Grants) != 1 {
		t.Errorf("YARN is gone for good, and granted is %v", d.Grants)
	}
}
