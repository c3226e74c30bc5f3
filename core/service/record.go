// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"themis/core/arbiter"
	"themis/core/cluster"
)

// Version is the program's, for recordings. Set it before Open.
var Version = "devel"

const (
	recordMost  = 1 << 30 // bytes of a recording
	recordAhead = 64      // lines that wait to be written
	recordClose = 2 * time.Second
)

// recorder appends what a core saw and decided to a file that sim.Replay reads.
// A step only hands its line over; writing it is for another goroutine, and if
// that cannot keep up or fails, it says so once and the recording ends. A nil
// recorder records nothing. Not safe for concurrent use.
type recorder struct {
	path  string
	most  int64
	log   func(string, ...any)
	lines chan any
	ended chan struct{} // the file is closed
	off   atomic.Bool
	last  *cluster.Snapshot
}

func newRecorder(path string, most int64, log func(string, ...any)) *recorder {
	if path == "" {
		return nil
	}
	r := &recorder{path: path, most: most, log: log, lines: make(chan any, recordAhead), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		if err := r.write(); err != nil {
			r.stop(err)
		}
	}()
	return r
}

// begin says that another arbiter decides from here on.
func (r *recorder) begin(cfg arbiter.Config, now time.Time, restored bool) {
	if r != nil {
		r.last = nil
		r.add(arbiter.RecordHead{Version: Version, Begin: now, Restored: restored, Config: &cfg})
	}
}

// step records one step; nobody may change the snapshot afterwards.
func (r *recorder) step(now time.Time, snap *cluster.Snapshot, d *arbiter.Decision) {
	if r == nil || r.off.Load() {
		return
	}
	line := arbiter.Record{Time: now, Decided: d.Decided()}
	if snap != r.last {
		line.Snapshot, r.last = snap, snap
	}
	r.add(line)
}

func (r *recorder) add(line any) {
	if r.off.Load() {
		return
	}
	select {
	case r.lines <- line:
	default:
		r.stop(errors.New("its disk is too slow"))
	}
}

func (r *recorder) stop(err error) {
	if !r.off.Swap(true) {
		r.log("the recording %s ends: %v", r.path, err)
	}
}

// close writes what is left, unless that takes too long.
func (r *recorder) close() {
	if r == nil {
		return
	}
	close(r.lines)
	select {
	case <-r.ended:
	case <-time.After(recordClose):
	}
}

func (r *recorder) write() (err error) {
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size, w := info.Size(), bufio.NewWriter(f)
	if end := make([]byte, 1); size > 0 {
		if _, err := f.ReadAt(end, size-1); err != nil {
			return err
		}
		if end[0] != '\n' { // a core was killed while it wrote
			w.WriteByte('\n')
			size++
		}
	}
	for line := range r.lines {
		raw, err := json.Marshal(line)
		if err != nil {
			return err
		}
		if size += int64(len(raw)) + 1; size > r.most {
			return errors.Join(w.Flush(), fmt.Errorf("it may have %d MiB; move it away and restart the core to record anew", r.most>>20))
		}
		w.Write(append(raw, '\n'))
		if len(r.lines) == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}
