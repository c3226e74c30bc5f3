// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"themis/bridge/pb"
	"themis/core/arbiter"
	"themis/core/cluster"
)

// TestRecordingGrows: a restarted core adds to what is there, and begins a line
// of its own though the one before it was killed amid its last.
func TestRecordingGrows(t *testing.T) {
	dir := t.TempDir()
	cfg := DefaultConfig()
	cfg.Serve.Record = filepath.Join(dir, "run.jsonl")
	for range 2 {
		s, err := Open(cfg, filepath.Join(dir, "ledger"), nil, t.Logf)
		if err != nil {
			t.Fatal(err)
		}
		observe(t, s, seen(pb.Job_PENDING))
		observe(t, s, &pb.Snapshot{Host: "slurm", Cluster: "test", Unchanged: true})
		s.Close()
		f, _ := os.OpenFile(cfg.Serve.Record, os.O_APPEND|os.O_WRONLY, 0)
		f.WriteString(`{"time":"20`)
		f.Close()
	}
	raw, _ := os.ReadFile(cfg.Serve.Record)
	lines := strings.Split(string(raw), "\n")
	for i, want := range []string{`"restored":false`, `"snapshot"`, `{"time"`, `{"time":"20`, `"restored":true`, `"snapshot"`, `{"time"`, `{"time":"20`} {
		if len(lines) != 8 || !strings.Contains(lines[i], want) {
			t.Fatalf("line %d is to have %s of 8, is one of %d:\n%s", i+1, want, len(lines), raw)
		}
	}
	if strings.Contains(lines[2], "snapshot") {
		t.Errorf("a snapshot that has not changed was written again")
	}
	if info, _ := os.Stat(cfg.Serve.Record); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o", info.Mode().Perm())
	}
}

// TestRecordingEnds: with a reason, once, and steps go on.
func TestRecordingEnds(t *testing.T) {
	dir := t.TempDir()
	for want, path := range map[string]string{
		"no such file":     filepath.Join(dir, "none", "run.jsonl"),
		"may have 0 MiB":   filepath.Join(dir, "full.jsonl"),
		"disk is too slow": filepath.Join(dir, "slow"),
	} {
		var mu sync.Mutex
		var said []string
		log := func(format string, args ...any) {
			mu.Lock()
			said = append(said, fmt.Sprintf(format, args...))
			mu.Unlock()
		}
		r := newRecorder(path, 2000, log)
		if strings.HasSuffix(path, "slow") { // nobody writes
			r.close()
			r = &recorder{path: path, log: log, lines: make(chan any, recordAhead), ended: r.ended}
		}
		r.begin(arbiter.Defaults(), time.Now(), false)
		for i := range 200 {
			r.step(time.Now(), &cluster.Snapshot{Cluster: fmt.Sprint(i)}, &arbiter.Decision{})
			if i%10 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		r.close()
		if len(said) != 1 || !strings.Contains(said[0], want) || !strings.Contains(said[0], path) {
			t.Errorf("%s: it says %q, want one %q", path, said, want)
		}
		if raw, _ := os.ReadFile(path); len(raw) > 2000 || len(raw) > 0 && !bytes.HasSuffix(raw, []byte("\n")) {
			t.Errorf("%s has %d bytes or half a line", path, len(raw))
		}
	}
}
