// SPDX-License-Identifier: Apache-2.0

// Package service runs the arbiter for real: it gives it the time and the
// host's snapshots, commits each decision to the ledger before it is announced,
// and answers the themis command.
package service

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"themis/bridge/pb"
	"themis/core/arbiter"
	"themis/core/ledger"
)

// Service is the core as the bridge serves it. Safe for concurrent use.
type Service struct {
	cfg    Config
	owners []uint32
	led    *ledger.Ledger
	path   string
	log    func(string, ...any) // errors, once each
	rec    *recorder            // nil: off

	mu      sync.Mutex
	arb     *arbiter.Arbiter // nil after a failed write: read anew from the ledger
	start   time.Time        // wall clock, with monotonic reading
	seq     uint64
	pool    *pool
	figures figures
}

type figures struct {
	snapshots         uint64
	stepLast, stepMax time.Duration
	saveLast, saveMax time.Duration
}

// Open opens the ledger in the folder and takes up where it ended. The owners are
// the uids of host daemons.
func Open(cfg Config, dir string, owners []uint32, log func(string, ...any)) (*Service, error) {
	led, err := ledger.Open(dir)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Service{cfg: cfg, owners: owners, led: led, path: filepath.Join(dir, "ledger.db"), log: log,
		start: now, seq: uint64(now.UnixNano()), rec: newRecorder(cfg.Serve.Record, recordMost, log)}
	known, err := led.Hosts()
	if err == nil {
		s.pool = newPool(&cfg, known)
		err = s.load()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close closes the ledger and the recording.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.close()
	s.rec = nil
	return s.led.Close()
}

// now is the wall clock at the start plus monotonic time since: leases do not
// jump with the clock.
func (s *Service) now() time.Time {
	return s.start.Add(time.Since(s.start)).Round(0).UTC()
}

func (s *Service) load() error {
	now := s.now()
	saved, past, err := s.led.Load(now)
	if err != nil {
		return err
	}
	s.arb = arbiter.Restore(s.cfg.Arbiter(), now, saved)
	for _, j := range past {
		s.arb.Remember(j)
	}
	s.rec.begin(s.cfg.Arbiter(), now, !saved.Fluid.IsZero() || len(past) > 0)
	return nil
}

// Observe implements bridge.Core. If the ledger cannot be written, nothing of
// the decision is announced, the host gets an error, and the next snapshot is
// decided on what the ledger holds.
func (s *Service) Observe(_ context.Context, in *pb.Snapshot) (*pb.Directives, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arb == nil {
		if err := s.load(); err != nil {
			return nil, err
		}
	}
	begin, now := time.Now(), s.now()
	h, err := s.pool.take(in, now)
	if err != nil {
		return nil, err
	}
	if m := s.pool.missing(s.start, now); m != nil {
		return nil, status.Errorf(codes.Unavailable, "waiting until the %s cluster %s is heard, whose jobs this core knows, or for %s at most (themis serve --forget %s if it is gone for good)",
			m.kind, m.said.Cluster, s.pool.patient/2, m.kind)
	}
	snap := s.pool.snapshot(now)
	if !slices.Equal(h.members, h.written) {
		if err := s.led.WriteHost(ledger.Host{Kind: h.kind, Cluster: h.said.Cluster, Nodes: h.members}); err != nil {
			return nil, err
		}
		h.written = h.members
	}
	d := s.arb.Step(now, snap)
	step := time.Since(begin)
	begin = time.Now()
	if err := s.led.Write(s.arb, &d, step); err != nil {
		s.arb = nil
		s.log("%v", err)
		return nil, err
	}
	s.rec.step(s.arb.Now(), snap, &d)
	s.note(step, time.Since(begin))
	return s.announce(h, s.pool.own(h, directivesOf(&d, &s.cfg)))
}

// announce numbers the directives of a host; equal ones keep their number.
func (s *Service) announce(to *host, d *pb.Directives) (*pb.Directives, error) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("directives: %w", err)
	}
	if h := sha256.Sum256(raw); to.told == 0 || h != to.hash {
		s.seq++
		to.told, to.hash = s.seq, h
	}
	// What follows is for the shim alone and no news to the host.
	d.Seq, d.AgainMs = to.told, s.again()
	return d, nil
}

// again is when the arbiter wants to see the next snapshot: when a round is due
// or, at the latest, after a tick.
func (s *Service) again() uint32 {
	again := time.Duration(s.cfg.Host.Tick)
	if due := s.arb.Due(); !due.IsZero() {
		again = min(again, max(due.Sub(s.arb.Now()), 0))
	}
	return uint32(again.Milliseconds())
}

func (s *Service) note(step, save time.Duration) {
	f := &s.figures
	f.snapshots++
	f.stepLast, f.stepMax = step, max(f.stepMax, step)
	f.saveLast, f.saveMax = save, max(f.saveMax, save)
}
