// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"themis/bridge"
	"themis/bridge/pb"
	"themis/core/service"
)

func TestRestate(t *testing.T) {
	cases := []struct{ comment, said, want string }{
		{"", "progress=0.4", "themis: progress=0.4"},
		{"note of mine", "progress=0.4", "note of mine; themis: progress=0.4"},
		{"themis: app=x runtime=3h", "progress=0.4", "themis: app=x runtime=3h progress=0.4"},
		{"themis: app=x progress=0.2", "remaining=2h", "themis: app=x remaining=2h"},
		{`{"a":"themis: app=x progress=0.2","b":1}`, "progress=0.3", `{"a":"themis: app=x progress=0.3","b":1}`},
		{"http://themis:80/", "progress=1", "http://themis:80/; themis: progress=1"},
		{"themis: runtime=3h progress=0.2", "runtime=4h", "themis: runtime=4h"},
		{"themis: progress=0.2", "checkpoint=10m", "themis: progress=0.2 checkpoint=10m"},
		{"themis: app=x progress=0.2", "speedup=1:1,2:1.9", "themis: app=x progress=0.2 speedup=1:1,2:1.9"},
		{"x;themis: speedup=1:1,2:1.9 remaining=2h; y", "speedup=1:1,8:6.1", "x;themis: remaining=2h speedup=1:1,8:6.1; y"},
		{"themis: place=1,.9 order=short", "place=1,.8,.5", "themis: order=short place=1,.8,.5"},
		{"themis: order=short", "order=large", "themis: order=large"},
	}
	for _, c := range cases {
		if got := restate(c.comment, []string{c.said}); got != c.want {
			t.Errorf("%q and %s: got %q, want %q", c.comment, c.said, got, c.want)
		}
		if _, err := bridge.ParseHint(c.want); err != nil {
			t.Errorf("%q: %v", c.want, err)
		}
	}
}

// TestReport reports for a job of a made-up scontrol, which keeps the comment in
// a file.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "comment")
	script := fmt.Sprintf("#!/bin/sh\ncase $1 in\nshow) echo \"JobId=7 Comment=$(cat %s) Power=\" ;;\nupdate) echo \"${3#comment=}\" >%s ;;\nesac\n", kept, kept)
	if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, []byte("themis: app=x runtime=3h"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, args := range []string{"--progress 0.2 --speedup 1:1,2:1.5", "--speedup 1:1,2:1.9,4:3.5 --place 1,.9,.7", "--order short"} {
		if _, err := command(t, append([]string{"report", "--job", "7"}, strings.Fields(args)...)...); err != nil {
			t.Errorf("report %s: %v", args, err)
		}
	}
	comment, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	want := bridge.Hint{App: "x", Runtime: 3 * time.Hour, Progress: 0.2, Place: []float64{1, .9, .7},
		Speedup: []bridge.Point{{GPUs: 1, Speed: 1}, {GPUs: 2, Speed: 1.9}, {GPUs: 4, Speed: 3.5}}, Order: "short"}
	if got, err := bridge.ParseHint(string(comment)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q: got %+v, %v; want %+v", comment, got, err, want)
	}
}

func TestCommentOf(t *testing.T) {
	const line = "JobId=7 JobName=x StdOut=/a Comment=site=1; themis: app=x runtime=3h Power= TresPerNode=gres:gpu:1"
	if got := commentOf(line); got != "site=1; themis: app=x runtime=3h" {
		t.Errorf("got %q", got)
	}
	if got := commentOf("JobId=7 Power="); got != "" {
		t.Errorf("got %q", got)
	}
}

// command runs the themis command in this process.
func command(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stdout
	os.Stdout = w
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(io.Discard)
	err = root.Execute()
	os.Stdout = old
	w.Close()
	out, _ := io.ReadAll(r)
	return string(out), err
}

// TestCommands runs each query against a core with one running and one waiting
// job.
func TestCommands(t *testing.T) {
	dir, err := os.MkdirTemp("", "themis.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := service.DefaultConfig()
	cfg.Auction.Settle = 0
	core, err := service.Open(cfg, filepath.Join(dir, "ledger"), []uint32{uint32(os.Getuid())}, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer core.Close()
	snap := &pb.Snapshot{Cluster: "c", Nodes: []*pb.Node{{Name: "n1", Cpus: 8, Gpus: []*pb.GPUs{{Total: 4, Used: 4}}}}}
	for i, state := range []pb.Job_State{pb.Job_RUNNING, pb.Job_PENDING} {
		snap.Jobs = append(snap.Jobs, &pb.Job{Id: fmt.Sprint(7 + i), User: []string{"alice", "bob"}[i], Name: "train", State: state,
			SubmitS: time.Now().Unix() - 100, NodesMin: 1, GpusPerNode: 4, AnyNode: true, LimitS: 3600})
	}
	snap.Hooks = []*pb.Hook{{Name: "job_test", Calls: 3}}
	snap.Jobs[0].On = []*pb.Share{{Node: 0, Gpus: 4}}
	if _, err := core.Observe(context.Background(), snap); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	lis, err := bridge.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(hereEnv, "1")
	server := bridge.NewServer(core, []uint32{uint32(os.Getuid())})
	defer server.Stop()
	// A core that was killed leaves its socket; the next one is waited for.
	lis.(*net.UnixListener).SetUnlinkOnClose(false)
	lis.Close()
	time.AfterFunc(restartWait/6, func() {
		if lis, err := bridge.Listen(socket); err == nil {
			server.Serve(lis)
		}
	})
	if _, err := command(t, "status", "--socket", socket); err != nil {
		t.Errorf("a core that comes back is not waited for: %v", err)
	}
	for args, want := range map[string][]string{
		"status":             {"cluster c: 1 nodes, 4 GPUs, 4 in use", "alice/7", "bob/8"},
		"status --internals": {"HOOK", "ledger write"},
		"explain 8":          {"job          8 (pending), 4 GPUs, app bob/8", "rank         1 of 1", "would help", "starts       between"},
		"explain 7":          {"job          7 (running)", "lease        1 on n1:4, held"},
		"apps":               {"APP", "bob/8"},
		"leases":             {"held", "n1:4"},
		"leases --last 3":    {"alice/7"},
		"rounds":             {""},
	} {
		out, err := command(t, append(strings.Fields(args), "--socket", socket)...)
		for _, w := range want {
			if err != nil || !strings.Contains(out, w) {
				t.Errorf("themis %s: %v, want %q in\n%s", args, err, w, out)
			}
		}
		out, err = command(t, append(strings.Fields(args), "--json", "--socket", socket)...)
		if err != nil || !json.Valid([]byte(out)) {
			t.Errorf("themis %s --json: %v\n%s", args, err, out)
		}
	}
	for args, code := range map[string]int{
		"explain 99 --socket " + socket: exitNoJob, "explain": exitUsage, "nonsense": exitUsage, "status --colour": exitUsage,
		"status --socket " + dir + "/none": exitNoCore, "report --job 1": exitUsage, "report --job 1 --progress 7": exitUsage,
		"report --job application_1_0001 --progress 0.5": exitUsage, "report --job 1 --speedup 8:1,4:2": exitUsage, "report --job 1 --order fifo": exitUsage,
		"serve --check --config " + dir:   exitFailed,
		"gpus --library " + dir + "/none": exitNoNVML, "gpus --yarn": exitUsage, "gpus --check --gres-conf": exitUsage, "gpus --limit 0s": exitUsage,
		"gpus --check --gres-file " + dir + "/none": exitFailed,
	} {
		if _, err := command(t, strings.Fields(args)...); err == nil || exitCode(err) != code || describe(err) == "" {
			t.Errorf("themis %s: exit code %d (%v), want %d", args, exitCode(err), err, code)
		}
	}
	for _, host := range []string{"hint:", "slurmctld", "ResourceManager"} {
		if text := describe(noCore{errors.New("x")}); !strings.Contains(text, host) {
			t.Errorf("no %s in %s", host, text)
		}
	}
}
