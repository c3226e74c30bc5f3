// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"themis/bridge"
	"themis/bridge/pb"
	"themis/core/arbiter"
	"themis/core/cluster"
	"themis/core/ledger"
)

// viewMost bounds what one query returns.
const (
	viewMost   = 10000
	roundsMost = 200
)

// View implements bridge.Core. Under the host's PrivateData, users other than
// root and the host daemon's see only what is their own.
func (s *Service) View(_ context.Context, uid uint32, v *pb.View) ([]byte, error) {
	show, err := s.filter(uid)
	if err != nil {
		return nil, err
	}
	// What is in the ledger is read without holding up decisions.
	switch {
	case v.Name == "rounds" && v.Job != "":
		out, err := s.round(v.Job, show)
		return answer(out, err)
	case v.Name == "proof":
		return s.proof(v.Job, uid)
	case v.Name == "rounds":
		out, err := s.rounds(int(min(v.Limit, roundsMost)), show)
		return answer(out, err)
	case v.Name == "leases" && v.Limit > 0:
		out, err := s.pastLeases(int(min(v.Limit, viewMost)), show)
		return answer(out, err)
	case v.Name == "ledger":
		out, err := s.past(v.Job, int(min(max(v.Limit, 1), viewMost)), uid)
		return answer(out, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arb == nil {
		return nil, errUnwritable
	}
	var out any
	switch v.Name {
	case "status", "internals":
		out = s.status(show, v.Name == "internals")
	case "apps":
		out = s.apps(show)
	case "explain":
		out, err = s.explain(v.Job, show)
	case "places":
		out = s.places(uid)
	case "leases":
		out = s.leases(show)
	default:
		err = status.Errorf(codes.InvalidArgument, "unknown view %q", v.Name)
	}
	return answer(out, err)
}

var errUnwritable = status.Error(codes.Unavailable, "the ledger cannot be written: see the core's log")

func answer(out any, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// filter says which apps the caller may see: by the uid of any of its jobs.
func (s *Service) filter(uid uint32) (func(app string) bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arb == nil {
		return nil, errUnwritable
	}
	if s.privileged(uid) {
		return func(string) bool { return true }, nil
	}
	mine := map[string]bool{}
	for _, a := range s.arb.State().Apps {
		for _, j := range a.Jobs() {
			if j.UID == uid {
				mine[a.ID] = true
			}
		}
	}
	return func(app string) bool { return mine[app] }, nil
}

// privileged says whether the caller may see everybody's jobs; mu is held.
func (s *Service) privileged(uid uint32) bool {
	return uid == 0 || slices.Contains(s.owners, uid) || !s.pool.private()
}

func (s *Service) mayRead(uid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.privileged(uid)
}

func (s *Service) status(show func(string) bool, internals bool) bridge.Status {
	st := s.arb.State()
	out := bridge.Status{Now: s.now(), Nodes: st.Nodes, GPUs: st.GPUs, GPUsUsed: st.Used, GPUsWon: st.Claimed,
		Running: st.Running, Waiting: st.Waiting, NextRound: when(st.Next), Apps: []bridge.App{}}
	for _, h := range s.pool.sorted() {
		v := bridge.Host{Kind: h.kind, Cluster: h.said.Cluster, Silent: s.pool.silent(h, out.Now)}
		if !h.seen.IsZero() {
			v.SeenAgo = out.Now.Sub(h.seen).Seconds()
			out.SeenAgo = max(out.SeenAgo, v.SeenAgo)
		}
		out.Hosts = append(out.Hosts, v)
		out.Cluster = strings.TrimPrefix(out.Cluster+"+"+v.Cluster, "+")
	}
	if st.Last != nil {
		r := roundView(st.Last, show)
		out.LastRound = &r
	}
	for _, a := range st.Apps {
		if a.Ended.IsZero() {
			out.MaxRho = max(out.MaxRho, a.Rho)
			if show(a.ID) {
				out.Apps = append(out.Apps, appView(a))
			}
		}
	}
	for _, g := range st.Types {
		out.Types = append(out.Types, bridge.GPUs{Type: g.Type, GPUs: g.Total, Used: g.Used})
	}
	for _, i := range st.Idle {
		if show(i.Job.App.ID) {
			out.Idle = append(out.Idle, idleView(i))
		}
	}
	if internals {
		out.Internals = s.internals()
	}
	return out
}

func (s *Service) internals() *bridge.Internals {
	f := s.figures
	in := &bridge.Internals{Snapshots: f.snapshots, StepLast: f.stepLast.Seconds(), StepMax: f.stepMax.Seconds(),
		WriteLast: f.saveLast.Seconds(), WriteMax: f.saveMax.Seconds(), LedgerPath: s.path, Since: s.start, Hooks: []bridge.HookTime{}}
	for _, host := range s.pool.sorted() {
		for _, h := range host.said.Hooks {
			in.Hooks = append(in.Hooks, bridge.HookTime{Name: h.Name, Calls: h.Calls, Total: float64(h.TotalNs) / 1e9,
				Max: float64(h.MaxNs) / 1e9, Mean: float64(h.TotalNs) / 1e9 / float64(max(h.Calls, 1))})
		}
	}
	return in
}

func (s *Service) apps(show func(string) bool) []bridge.App {
	out := []bridge.App{}
	for _, a := range s.arb.State().Apps {
		if show(a.ID) {
			out = append(out, appView(a))
		}
	}
	return out
}

func appView(a *arbiter.App) bridge.App {
	v := bridge.App{ID: a.ID, User: a.User, Rho: a.Rho, Submit: a.Submit, Reference: when(a.Reference), Ended: when(a.Ended)}
	for _, j := range a.Jobs() {
		switch {
		case j.Done():
			v.Done++
			continue
		case j.State == cluster.Pending:
			v.Waiting += 1 + j.MoreTasks
		default:
			v.Running++
		}
		left := max(j.Estimate.Total-j.Attained, 0) + time.Duration(j.MoreTasks)*j.Estimate.Total
		v.WorkLeft += float64(j.Shape.Count()) * left.Seconds()
		if j.Lease != nil && j.Lease.State != arbiter.Reserved {
			v.GPUs += j.Lease.GPUs()
		}
	}
	return v
}

func (s *Service) explain(id string, show func(string) bool) (*bridge.Explain, error) {
	e, ok := s.arb.Explain(id)
	hidden := ok && e.Job.App != nil && !show(e.Job.App.ID)
	if !ok || hidden {
		return nil, status.Errorf(codes.NotFound, "no GPU job %s is known here; jobs without GPUs are not ours, and ended ones are forgotten after an hour (themis leases shows more)", id)
	}
	j := e.Job
	v := &bridge.Explain{Job: j.ID, User: j.User, State: stateOf(j), Why: e.Why, GPUs: j.Shape.Count(), Rank: e.Rank, Of: e.Of,
		NextRound: when(e.Next), Earliest: when(e.Starts[0]), Latest: when(e.Starts[1]), Advice: e.Advice, Note: j.Note,
		Estimate: j.Stated(j.Estimate.Total).Seconds(), Source: string(j.Estimate.Source), Attained: j.Stated(j.Attained).Seconds(),
		Lost: j.Stated(j.Lost).Seconds(), Types: e.Types, Speed: e.Speed}
	if j.App != nil {
		v.App, v.Rho = j.App.ID, j.App.Rho
	}
	if e.Bid != nil {
		b, r := bidView(*e.Bid), roundView(e.Last, func(string) bool { return false })
		v.Bid, v.Round = &b, &r
	}
	v.Debt, v.Used, v.Waited = e.Debt, useView(j.Use), waitedView(j.Waited)
	if e.Idle.GPUs > 0 {
		i := idleView(e.Idle)
		v.Idle = &i
	}
	for _, r := range e.Outbid {
		if show(r.App) {
			v.Outbid = append(v.Outbid, bidView(r))
		}
	}
	for _, r := range e.Held {
		if show(r.App) {
			v.HeldBy = append(v.HeldBy, bridge.Holder{App: r.App, Rho: r.Rho, GPUs: r.Won})
		}
	}
	if j.Lease != nil {
		l := leaseView(j.Lease)
		v.Lease = &l
	}
	return v, nil
}

func stateOf(j *arbiter.Job) string {
	if j.Done() {
		return string(j.Outcome)
	}
	return [...]string{"pending", "running", "suspended", "completing", "ended"}[j.State]
}

func (s *Service) leases(show func(string) bool) []bridge.Lease {
	out := []bridge.Lease{}
	for _, l := range s.arb.State().Leases {
		if show(l.App) {
			out = append(out, leaseView(l))
		}
	}
	return out
}

func (s *Service) pastLeases(limit int, show func(string) bool) ([]bridge.Lease, error) {
	out := []bridge.Lease{}
	stored, err := s.led.Leases(limit)
	for i := range stored {
		if show(stored[i].App) {
			out = append(out, leaseView(&stored[i]))
		}
	}
	return out, err
}

// past lists ended jobs, the newest first, or one of them. Under PrivateData they are the
// caller's own.
func (s *Service) past(job string, limit int, uid uint32) ([]bridge.Past, error) {
	var owner *uint32
	if !s.mayRead(uid) {
		owner = &uid
	}
	stored, err := s.led.Past(job, limit, owner)
	if err == nil && job != "" && len(stored) == 0 {
		return nil, status.Errorf(codes.NotFound, "no GPU job %s that has ended is in the ledger; themis explain %s shows one that goes on", plain(job), plain(job))
	}
	out := make([]bridge.Past, 0, len(stored))
	for _, p := range stored {
		v := bridge.Past{Job: p.Job.ID, App: p.App, User: p.Job.User, GPUs: p.Job.Shape.Count(), Submit: p.Job.Submit, Ended: p.Job.End,
			Outcome: string(p.Job.Outcome), Used: useView(p.Use), Waited: waitedView(p.Waited), Source: string(p.First.Source),
			Estimate: p.Stated(p.First.Total).Seconds(), Took: p.Stated(p.Attained).Seconds(), Lost: p.Stated(p.Lost).Seconds()}
		for i := range p.Leases {
			if l := &p.Leases[i]; !l.Started.IsZero() {
				v.Leases++
				v.Renewals += l.Renewals
				v.Leased += float64(l.GPUs()) * max(l.Ended.Sub(l.Started).Seconds(), 0)
			}
		}
		out = append(out, v)
	}
	return out, err
}

// places lists S as measured; under PrivateData of the caller's own jobs, as far as they are known.
func (s *Service) places(uid uint32) []bridge.Measured {
	mine := map[string]bool{}
	for _, a := range s.arb.State().Apps {
		for _, j := range a.Jobs() {
			mine[j.User] = mine[j.User] || j.UID == uid
		}
	}
	out := []bridge.Measured{}
	for _, m := range s.arb.Learnt() {
		if !s.privileged(uid) && !mine[m.User] {
			continue
		}
		v := bridge.Measured{User: m.User, Model: m.Model}
		for level := range m.Levels {
			f := &m.Levels[level]
			v.Levels = append(v.Levels, bridge.Factor{Level: cluster.Level(level).String(), S: m.Now[level], N: f.N, Mean: f.Mean, Deviation: f.Deviation()})
		}
		for _, t := range m.Speeds {
			f := m.Types[t.Type]
			v.Types = append(v.Types, bridge.TypeFactor{Type: t.Type, Speed: t.Speed, N: f.N, Mean: f.Mean, Deviation: f.Deviation()})
		}
		out = append(out, v)
	}
	return out
}

func idleView(i arbiter.Idle) bridge.Idle {
	return bridge.Idle{Job: i.Job.ID, App: i.Job.App.ID, GPUs: i.GPUs, Of: i.Job.Lease.GPUs(), Since: i.Since.UTC()}
}

func useView(u arbiter.Use) *bridge.Utilisation {
	if u.Seen <= 0 {
		return nil
	}
	return &bridge.Utilisation{Sampled: u.Seen, Busy: u.Busy / u.Seen}
}

func waitedView(w arbiter.Waited) bridge.Waited {
	return bridge.Waited{Host: w.Host.Seconds(), Auction: w.Auction.Seconds(), Gather: w.Gather.Seconds(), Start: w.Start.Seconds()}
}

func leaseView(l *arbiter.Lease) bridge.Lease {
	v := bridge.Lease{ID: l.ID, Job: l.Job, App: l.App, Round: l.Round, State: string(l.State), Places: shares(l.On),
		Length: l.Length.Seconds(), Granted: l.Granted, Started: when(l.Started), Expires: when(l.Expires), Ended: when(l.Ended),
		Renewals: l.Renewals, Reason: l.Reason}
	if l.State == arbiter.Ending {
		v.Reason = l.Warned
	}
	return v
}

func (s *Service) rounds(limit int, show func(string) bool) ([]bridge.Round, error) {
	stored, err := s.led.Rounds(max(limit, 1))
	out := make([]bridge.Round, 0, len(stored))
	for i := range stored {
		out = append(out, storedView(&stored[i], show))
	}
	if err != nil {
		err = fmt.Errorf("read rounds: %w", err)
	}
	return out, err
}

func (s *Service) round(id string, show func(string) bool) ([]bridge.Round, error) {
	n, err := roundNumber(id)
	if err != nil {
		return nil, err
	}
	stored, err := s.led.Round(n)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, status.Errorf(codes.NotFound, "no round %d is in the ledger; themis rounds shows the latest", n)
	} else if err != nil {
		return nil, fmt.Errorf("read round %d: %w", n, err)
	}
	return []bridge.Round{storedView(&stored, show)}, nil
}

func storedView(s *ledger.StoredRound, show func(string) bool) bridge.Round {
	r := roundView(&s.Round, show)
	r.Took = s.Took.Seconds()
	return r
}

// proof is all bids of a round: under PrivateData not for everybody.
func (s *Service) proof(id string, uid uint32) ([]byte, error) {
	if !s.mayRead(uid) {
		return nil, status.Error(codes.PermissionDenied, "a proof shows everybody's bids, and PrivateData=jobs is set: only root and SlurmUser may read it")
	}
	n, err := roundNumber(id)
	if err != nil {
		return nil, err
	}
	raw, err := s.led.Proof(n)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, status.Errorf(codes.NotFound, "no proof of round %d is kept: there are those of the newest 1,000 rounds in which GPUs were on offer", n)
	}
	return raw, err
}

func roundNumber(id string) (uint64, error) {
	n, err := strconv.ParseUint(id, 10, 63)
	if err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "%q is not the number of a round; themis rounds shows them", plain(id))
	}
	return n, nil
}

func roundView(r *arbiter.Round, show func(string) bool) bridge.Round {
	v := bridge.Round{ID: r.ID, At: r.At, Free: r.Free, Apps: r.Apps, Welfare: r.Welfare, Bound: r.Bound, Exact: r.Exact, Bids: []bridge.Bid{}}
	for _, b := range r.Bids {
		if b.In {
			v.Participants++
		}
		if show(b.App) {
			v.Bids = append(v.Bids, bidView(b))
		}
	}
	return v
}

func bidView(b arbiter.BidRecord) bridge.Bid {
	return bridge.Bid{App: b.App, In: b.In, Rho: b.Rho, After: b.After, Wanted: b.Wanted, Won: b.Won, Payment: b.Payment, PaymentLow: b.PaymentLow,
		Gain: b.Gain, Price: b.Price, Slack: b.Slack.Seconds(), Source: string(b.Source), Places: shares(b.Places)}
}

func shares(on []cluster.Share) []bridge.Share {
	out := make([]bridge.Share, len(on))
	for i, s := range on {
		out[i] = bridge.Share{Node: s.Node, GPUs: s.GPUs}
		for k, n := range s.Slots {
			if n > 0 {
				out[i].Slots = append(append(out[i].Slots, make([]int, k-len(out[i].Slots))...), int(n))
			}
		}
	}
	return out
}

func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
