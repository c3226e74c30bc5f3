// SPDX-License-Identifier: Apache-2.0

package sim

// Result is what `themis sim --json` prints: stable, described by
// result.schema.json. Times are in hours, durations with _s in seconds.
type Result struct {
	Trace    string         `json:"trace"`
	Format   string         `json:"format"`
	Cluster  string         `json:"cluster"`
	Nodes    int            `json:"nodes"`
	GPUs     int            `json:"gpus"`
	Apps     int            `json:"apps"`
	Jobs     int            `json:"jobs"`
	Floor    float64        `json:"floor_gpu_hours"` // the work: GPU-hours at S = 1, without any restart
	Seed     uint64         `json:"seed"`
	Settings Settings       `json:"settings"`
	Notes    []string       `json:"notes,omitempty"`
	Skipped  int            `json:"rows_skipped,omitempty"`
	Bounds   *Bounds        `json:"bounds,omitempty"` // only where they are proven: apps of one job
	Policies []PolicyResult `json:"policies"`
}

// Settings are the options that shape a run.
type Settings struct {
	LeaseS   float64 `json:"lease_s"`
	F        float64 `json:"f"`
	Target   float64 `json:"target"` // the worst rho that Themis aims at
	Aim      string  `json:"aim"`    // of Themis: "turnaround" or "makespan"
	RestartS float64 `json:"restart_s"`
	Jobs     string  `json:"jobs"`      // "rigid" or "elastic"
	Estimate string  `json:"estimates"` // "declared", "history" or "limit"
	Error    float64 `json:"error"`     // declared run times are off by up to this share, both ways
	Entity   string  `json:"entity"`    // whose share is split: "app", "user" or "account"
	MTBFH    float64 `json:"mtbf_h"`    // of a node; 0: none fails
	Lies     string  `json:"lies,omitempty"`
}

// Bounds are proven limits of any schedule of this trace on this cluster.
type Bounds struct {
	RhoMax    float64         `json:"rho_reference_max_at_least"`
	Makespans []MakespanBound `json:"makespan_at_least"`
}

// MakespanBound says that a schedule whose worst rho (reference) is at most Rho
// takes at least so long; Rho 0 stands for any.
type MakespanBound struct {
	Rho   float64 `json:"rho"`
	Hours float64 `json:"hours"`
}

// PolicyResult is one policy's run.
type PolicyResult struct {
	Policy      string         `json:"policy"` // its name in --policy
	Title       string         `json:"title"`
	Rho         map[string]Rho `json:"rho"` // by definition: see Definitions
	GPUHours    float64        `json:"gpu_hours"`
	IdleHours   float64        `json:"idle_gpu_hours"` // from the first arrival to the last end
	Makespan    float64        `json:"makespan_h"`
	JCTMean     float64        `json:"jct_mean_h"` // of apps: submission to end
	JCTMedian   float64        `json:"jct_median_h"`
	JCTP99      float64        `json:"jct_p99_h"`
	Utilisation float64        `json:"utilisation"` // GPU-hours over all GPUs' hours to the last end
	Placement   float64        `json:"placement"`   // mean S of the GPU-hours used
	Starts      int            `json:"starts"`
	Migrations  int            `json:"migrations"` // starts of a job that had run before
	Failures    int            `json:"node_failures,omitempty"`
	Events      int            `json:"events"`
	Unfinished  int            `json:"unfinished,omitempty"` // jobs, of a run that was stopped
	PerApp      []AppResult    `json:"apps"`                 // by submission
	Busy        []float64      `json:"busy"`                 // share of GPUs in use in equal parts of the makespan
	Lanes       []Lane         `json:"lanes,omitempty"`      // with Options.Lanes: who had which node, for the time line
}

// Rho sums up one definition over all apps, or all jobs where it is of jobs.
type Rho struct {
	Max    float64 `json:"max"`
	P99    float64 `json:"p99"`
	Median float64 `json:"median"`
	Mean   float64 `json:"mean"`
	Jain   float64 `json:"jain"`         // of 1/rho: (sum x)^2 / (n sum x^2)
	Unfair float64 `json:"unfair_share"` // share above 1.05
}

// AppResult is one app's fate.
type AppResult struct {
	App     string             `json:"app"`
	User    string             `json:"user,omitempty"`
	Jobs    int                `json:"jobs"`
	Submit  float64            `json:"submit_h"`
	End     float64            `json:"end_h"`
	Ref     float64            `json:"reference_h"` // when it ends in the fluid fair schedule
	GPUHour float64            `json:"work_gpu_hours"`
	Rho     map[string]float64 `json:"rho"` // by definition, those of apps
}

// Lane is a job's stay on a node.
type Lane struct {
	Node string  `json:"node"`
	From float64 `json:"from_h"`
	To   float64 `json:"to_h"`
	GPUs int     `json:"gpus"`
	App  int     `json:"app"` // index in PerApp
}

// Definitions of rho in the order in which they are printed, and whose they are.
// T = finish - submission; W = work in GPU-time at S = 1; par = most GPUs at once;
// cp = critical path; R = GPUs of the cluster.
var Definitions = []struct{ Name, Of, What string }{
	{"reference", "app", "T over its time in a fluid max-min fair schedule of the same arrivals: what we promise"},
	{"share", "app", "T over max(cp, W * N_avg / R): a strict 1/N share, N_avg the mean number of apps in its life"},
	{"paper", "app", "T over max(cp, W / R) * N_avg: the paper's"},
	{"shockwave", "app", "T over T_alone * mean max(1, demand / R)"},
	{"job", "job", "T over (W / par) * C, C = all demand that has arrived / R: the authors' code"},
	{"job-live", "job", "the same with the demand of unfinished jobs, at least 1"},
}
