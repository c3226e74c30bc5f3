// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"themis/bridge"
	"themis/bridge/pb"
	"themis/core/ledger"
)

func openAt(t *testing.T, dir string) *Service {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Auction.Settle = 0
	s, err := Open(cfg, dir, []uint32{64030}, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// seen is a node with 8 GPUs and jobs of 4 each, in the given states.
func seen(states ...pb.Job_State) *pb.Snapshot {
	s := &pb.Snapshot{Host: "slurm", Cluster: "test", Nodes: []*pb.Node{{Name: "n1", Cpus: 32, Gpus: []*pb.GPUs{{Total: 8}}}}}
	for i, st := range states {
		j := &pb.Job{Id: string(rune('1' + i)), Uid: 1000 + uint32(i), User: string(rune('a' + i)), Name: "train", State: st,
			SubmitS: time.Now().Unix() - 60, NodesMin: 1, GpusPerNode: 4, AnyNode: true, LimitS: 3600}
		if st == pb.Job_RUNNING {
			j.On = []*pb.Share{{Node: 0, Gpus: 4}}
			s.Nodes[0].Gpus[0].Used += 4
		}
		s.Jobs = append(s.Jobs, j)
	}
	return s
}

func observe(t *testing.T, s *Service, snap *pb.Snapshot) *pb.Directives {
	t.Helper()
	d, err := s.Observe(context.Background(), snap)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNothingIsLostOnRestart(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir)
	first := observe(t, s, seen(pb.Job_RUNNING, pb.Job_PENDING))
	if len(first.Grants) != 1 || first.Grants[0].Job != "2" {
		t.Fatalf("grants %v", first.Grants)
	}
	if again := observe(t, s, seen(pb.Job_RUNNING, pb.Job_PENDING)); again.Seq != first.Seq {
		t.Errorf("equal directives got a new number")
	}
	s.Close()
	s = openAt(t, dir)
	defer s.Close()
	second := observe(t, s, seen(pb.Job_RUNNING, pb.Job_PENDING))
	if len(second.Grants) != 1 || second.Grants[0].Lease != first.Grants[0].Lease || second.Seq <= first.Seq {
		t.Errorf("after a restart %v, before %v", second, first)
	}
	var leases []bridge.Lease
	view(t, s, 0, &pb.View{Name: "leases"}, &leases)
	if len(leases) != 2 || leases[0].Round != 0 || leases[1].State != "granted" {
		t.Errorf("leases %+v", leases)
	}
}

func view(t *testing.T, s *Service, uid uint32, v *pb.View, out any) {
	t.Helper()
	raw, err := s.View(context.Background(), uid, v)
	if err == nil {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPrivateData: under PrivateData=jobs a user sees its own jobs only.
func TestPrivateData(t *testing.T) {
	s := openAt(t, t.TempDir())
	defer s.Close()
	snap := seen(pb.Job_RUNNING, pb.Job_RUNNING)
	snap.PrivateJobs = true
	observe(t, s, snap)
	for uid, want := range map[uint32]int{0: 2, 64030: 2, 1000: 1, 1001: 1, 4711: 0} {
		var apps []bridge.App
		view(t, s, uid, &pb.View{Name: "apps"}, &apps)
		if len(apps) != want {
			t.Errorf("uid %d sees %d apps, want %d", uid, len(apps), want)
		}
	}
	if _, err := s.View(context.Background(), 1001, &pb.View{Name: "explain", Job: "1"}); status.Code(err) != codes.NotFound {
		t.Errorf("explain of another's job: %v", err)
	}
}

// TestUnwritableLedger: nothing is announced that was not committed.
func TestUnwritableLedger(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir)
	defer s.Close()
	db, err := sql.Open("sqlite3", filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	// As on a full disk: every insert fails.
	if _, err := db.Exec("CREATE TRIGGER full BEFORE INSERT ON lease BEGIN SELECT RAISE(ABORT, 'disk full'); END"); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Observe(context.Background(), seen(pb.Job_PENDING)); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Fatalf("announced %v, %v", d, err)
	}
	if _, err := db.Exec("DROP TRIGGER full"); err != nil {
		t.Fatal(err)
	}
	d := observe(t, s, seen(pb.Job_PENDING))
	var stored []bridge.Lease
	view(t, s, 0, &pb.View{Name: "leases", Limit: 9}, &stored)
	if len(d.Grants) != 1 || len(stored) != 1 || stored[0].ID != d.Grants[0].Lease {
		t.Errorf("once there is room again %v is announced, %v is stored", d.Grants, stored)
	}
}

func TestBadLedgers(t *testing.T) {
	t.Run("damaged, never overwritten", func(t *testing.T) {
		dir := t.TempDir()
		junk := bytes.Repeat([]byte("not a database "), 1000)
		if err := os.WriteFile(filepath.Join(dir, "ledger.db"), junk, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ledger.Open(dir); err == nil || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("got %v", err)
		}
		if now, _ := os.ReadFile(filepath.Join(dir, "ledger.db")); !bytes.Equal(now, junk) {
			t.Error("the file was changed")
		}
	})
	t.Run("from a newer release", func(t *testing.T) {
		dir := t.TempDir()
		openAt(t, dir).Close()
		db, _ := sql.Open("sqlite3", filepath.Join(dir, "ledger.db"))
		db.Exec("PRAGMA user_version = 99")
		db.Close()
		if _, err := ledger.Open(dir); err == nil || !strings.Contains(err.Error(), "newer themis") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("in use", func(t *testing.T) {
		dir := t.TempDir()
		s := openAt(t, dir)
		defer s.Close()
		if _, err := ledger.Open(dir); !errors.Is(err, ledger.ErrInUse) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a link in its place", func(t *testing.T) {
		dir := t.TempDir()
		os.Symlink("/etc/passwd", filepath.Join(dir, "ledger.db"))
		if _, err := ledger.Open(dir); err == nil {
			t.Error("a symbolic link was followed")
		}
	})
	t.Run("private", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "new")
		s := openAt(t, dir)
		observe(t, s, seen(pb.Job_PENDING))
		defer s.Close()
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			if info, _ := f.Info(); info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %o", f.Name(), info.Mode().Perm())
			}
		}
		if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
			t.Errorf("folder has mode %o", info.Mode().Perm())
		}
	})
}

// TestHostileSnapshot: whatever a host's clients made up, the core lives.
func TestHostileSnapshot(t *testing.T) {
	s := openAt(t, t.TempDir())
	defer s.Close()
	const most = 1<<32 - 1
	snap := seen(pb.Job_PENDING)
	snap.Jobs = append(snap.Jobs, &pb.Job{Id: "9", State: pb.Job_PENDING, SubmitS: -5, NodesMin: most, NodesMax: 1, GpusPerNode: most, Gpus: most,
		CpusPerNode: most, MemPerNodeMib: 1<<64 - 1, MoreTasks: most, Eligible: []uint32{7, most}, On: []*pb.Share{{Node: 99, Gpus: 1}},
		Name: "\x1b[31m<script>%n\x00", Comment: "themis: " + strings.Repeat("x", 1<<16), Share: -1},
		&pb.Job{Id: "8", State: 77, Outcome: 99}, &pb.Job{})
	snap.Nodes = append(snap.Nodes, &pb.Node{State: 5, Gpus: []*pb.GPUs{{Total: 1, Used: 9}}})
	observe(t, s, snap)
	for _, w := range observe(t, s, snap).Waits {
		if strings.ContainsFunc(w.Why, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("reason %q", w.Why)
		}
	}
}
