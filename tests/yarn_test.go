// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"strings"
	"testing"
	"time"

	"themis/tests/privateyarn"
)

func startYarn(t *testing.T, opt privateyarn.Options) *privateyarn.Cluster {
	t.Helper()
	opt.Themis = true
	if opt.ThemisTOML == "" {
		opt.ThemisTOML = quick
	}
	return privateyarn.StartT(t, opt)
}

func submit(t *testing.T, c *privateyarn.Cluster, app privateyarn.App) *privateyarn.Submitted {
	t.Helper()
	s, err := c.Submit(app)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func await(t *testing.T, s *privateyarn.Submitted, cond func(privateyarn.Report) bool) privateyarn.Report {
	t.Helper()
	r, err := s.Wait(patient, cond)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func succeeded(r privateyarn.Report) bool { return r.FinalStatus == "SUCCEEDED" }

// TestYarnGang: a gang starts whole, on a lease, and ends.
func TestYarnGang(t *testing.T) {
	c := startYarn(t, privateyarn.Options{})
	begin := time.Now()
	app := submit(t, c, privateyarn.App{Containers: 4, GPUs: 2, Seconds: 3})
	await(t, app, succeeded)
	t.Logf("took %v\n%s\n%s", time.Since(begin), app.Events(), c.Said())
	if strings.Count(app.Events(), "got container") != 4 {
		t.Error("not 4 containers")
	}
}
