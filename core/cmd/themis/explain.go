// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"themis/bridge"
	"themis/bridge/pb"
)

func newExplain(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "explain JOB",
		Short:   "why a job waits, who outbid it, when it will run, what would help",
		Example: "  themis explain 1234\n  themis explain 1234_7   # a task of an array\n  themis explain application_1760000000000_0012   # on YARN",
		Args:    exactly("JOB"),
		RunE: func(_ *cobra.Command, args []string) error {
			var e bridge.Explain
			if done, err := a.get(&pb.View{Name: "explain", Job: args[0]}, &e); done || err != nil {
				return err
			}
			printExplain(&e)
			return nil
		},
	}
}

// sourceWords say where a run time estimate comes from.
var sourceWords = map[string]string{
	"reported":  "as the job reports",
	"declared":  "as declared",
	"corrected": "as declared, corrected by how wrong this user's declarations proved",
	"history":   "as like jobs took",
	"limit":     "its time limit",
	"guess":     "a guess, as it has no time limit",
}

// bidWords tell an admin what the app bid in the last auction, what that was up
// against, what it paid, and how good the outcome provably is.
func bidWords(e *bridge.Explain) (out [][2]string) {
	if e.Debt >= 1 {
		out = append(out, [2]string{"owes", fmt.Sprintf("%s*GPU, by jobs that could not be reclaimed: until it has decayed, bids count the reference as later", span(e.Debt))})
	}
	b, r := e.Bid, e.Round
	if b == nil || r == nil {
		return out
	}
	say := func(name, format string, args ...any) {
		out = append(out, [2]string{name, fmt.Sprintf(format, args...)})
	}
	if !b.In {
		say("last auction", "round %d: took no part, as others were worse off, and was served from what was left: %d GPUs", r.ID, b.Won)
		return out
	}
	say("last auction", "round %d: asked for %d of %d GPUs on offer, won %d; rho %.2f became %.2f", r.ID, b.Wanted, r.Free, b.Won, b.Rho, b.After)
	if b.Gain > 0 {
		say("bid", "its next job would gain it %s; the GPUs that it needs were worth %s to others", percent(b.Gain), percent(b.Price))
	}
	if b.Won > 0 && b.Payment < 0.995 {
		say("payment", "keeps %s of what it won: that much its presence cost the others", keeps(b))
	}
	say("slack", "%s until it can no longer end by its reference, even on all the GPUs it asks for", signed(b.Slack))
	say("outcome", "%s", quality(r))
	return out
}

// linesMost bounds the apps that are listed; --json has all.
const linesMost = 5

func printExplain(e *bridge.Explain) {
	line := func(name, format string, args ...any) {
		fmt.Printf("%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("job", "%s (%s), %d GPUs, app %s", e.Job, e.State, e.GPUs, dash(e.App))
	line("why", "%s", e.Why)
	if e.App != "" {
		line("rho", "%.2f: the app is projected to end after %.2f times what its fair share would take", e.Rho, e.Rho)
	}
	if e.Rank > 0 {
		line("rank", "%d of %d waiting apps", e.Rank, e.Of)
	}
	if e.Earliest != nil {
		line("starts", "between %s and %s, as far as known", clock(e.Earliest), clock(e.Latest))
	}
	if e.NextRound != nil && e.State == "pending" {
		line("next auction", "%s", clock(e.NextRound))
	}
	for i, b := range e.Outbid[:min(len(e.Outbid), linesMost)] {
		line([]string{"outbid by", ""}[min(i, 1)], "%s: rho %.2f, won %d GPUs on %s", b.App, b.Rho, b.Won, places(b.Places))
	}
	for _, text := range bidWords(e) {
		line(text[0], "%s", text[1])
	}
	for i, h := range e.HeldBy[:min(len(e.HeldBy), linesMost)] {
		line([]string{"GPUs held by", ""}[min(i, 1)], "%s: rho %.2f, %d GPUs", h.App, h.Rho, h.GPUs)
	}
	line("run time", "%s, %s; %s done", span(e.Estimate), sourceWords[e.Source], span(e.Attained))
	if e.Lost > 0 {
		line("lost", "%s by failures of nodes: its fair share is counted as having lost that, too", span(e.Lost))
	}
	if l := e.Lease; l != nil {
		line("lease", "%d on %s, %s, until %s, renewed %d times", l.ID, places(l.Places), l.State, clock(l.Expires), l.Renewals)
		switch {
		case e.Speed > 0:
			line("GPUs", "%s, speed %.3g; its run time is of speed 1", dash(e.Types), e.Speed)
		case e.Types != "":
			line("GPUs", "%s", e.Types)
		}
	}
	if e.Used != nil {
		line("busy", "%.0f%% of the %s*GPU that were looked at", 100*e.Used.Busy, span(e.Used.Sampled))
	}
	if e.Idle != nil {
		line("idle", "%s", idleWords(e.Idle))
	}
	if w := waitedWords(e.Waited); w != "" {
		line("waited", "%s", w)
	}
	if e.Note != "" {
		line("last grant", "%s", e.Note)
	}
	if len(e.Advice) > 0 {
		line("would help", "%s", strings.Join(e.Advice, "\n             "))
	}
}
