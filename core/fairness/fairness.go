// SPDX-License-Identifier: Apache-2.0

// Package fairness measures finish-time fairness, rho = T_sh / T_id (paper
// section 3): the time from an app's submission to its projected finish on the
// shared cluster over the time it would have taken on its fair share. T_id is
// the app's finish in the virtual schedule of Fluid.
//
// The package decides nothing and reads no clock.
package fairness

import "time"

// Outlook is what an app's rho is made of at one moment.
type Outlook struct {
	Now       time.Time
	Submit    time.Time
	Reference time.Time     // finish in the virtual schedule
	Work      float64       // GPU-seconds left at S = 1
	Longest   time.Duration // of its unfinished jobs, run alone
	FairRate  float64       // GPUs that are its share now
	Lease     time.Duration // for how long a grant lasts
	Owed      time.Duration // by which its reference counts as later, for what its user owes
}

// minIdeal keeps rho finite for apps of next to no work.
const minIdeal = time.Second

// Ideal is T_id, the app's time on its fair share; at least a second.
func (o Outlook) Ideal() time.Duration { return max(o.Reference.Sub(o.Submit), minIdeal) + o.Owed }

// Left is the projected time to the app's finish when it works at rate GPUs
// (each counted with its S) for the next lease and on its fair share after it.
// With rate 0 the app waits out the lease.
func (o Outlook) Left(rate float64) time.Duration {
	if o.Work <= 0 {
		return 0
	}
	fair := max(o.FairRate, 1e-3)
	lease := o.Lease.Seconds()
	var left float64
	if rate > 0 && o.Work <= rate*lease {
		left = o.Work / rate
	} else {
		left = lease + max(o.Work-rate*lease, 0)/fair
	}
	// Not all of an app's jobs need the same time: no rate shortens the longest.
	if rate > 0 {
		left = max(left, o.Longest.Seconds())
	} else {
		left = max(left, lease+o.Longest.Seconds())
	}
	return seconds(left)
}

// Rho is the app's projected finish-time fairness if it works at the given rate
// for a lease, which is what is shown of it. It falls as rate grows and is always
// positive and finite.
func (o Outlook) Rho(rate float64) float64 {
	shared := o.Now.Add(o.Left(rate)).Sub(o.Submit)
	return max(shared.Seconds(), 1e-3) / o.Ideal().Seconds()
}

// Bid is the rho that a bid states for a rate (paper section 3): as if the app
// kept that rate to its end. So 1/rho grows in proportion to what is won, which
// is what makes the product of 1/rho an even division, and falls off where more
// GPUs no longer help. An app that wins nothing is counted as if it had a tenth
// of a GPU, or of its fair share if that is less: worse than any win, yet finite.
func (o Outlook) Bid(rate float64) float64 {
	rate = max(rate, 0.1*min(max(o.FairRate, 1e-3), 1))
	left := max(seconds(o.Work/rate), o.Longest)
	shared := o.Now.Add(left).Sub(o.Submit)
	return max(shared.Seconds(), 1e-3) / o.Ideal().Seconds()
}

// Slack is how long the app could still wait, getting nothing, and yet end by
// its reference if it then ran on par GPUs, its full width, at S = 1. It is
// negative once that is out of reach.
func (o Outlook) Slack(par float64) time.Duration {
	alone := o.Longest
	if o.Work > 0 {
		alone = max(alone, seconds(o.Work/max(par, 1e-3)))
	}
	return o.Reference.Sub(o.Now.Add(alone))
}

// Final is the rho of an app that has ended.
func Final(submit, end, reference time.Time) float64 {
	return max(end.Sub(submit).Seconds(), 1e-3) / max(reference.Sub(submit), minIdeal).Seconds()
}
