// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"themis/core/arbiter"
)

// Config is themis.toml: etc/themis.toml shows every key with its default.
type Config struct {
	Auction  AuctionConfig  `toml:"auction"`
	Lease    LeaseConfig    `toml:"lease"`
	Gather   GatherConfig   `toml:"gather"`
	Share    ShareConfig    `toml:"share"`
	Fairness FairnessConfig `toml:"fairness"`
	Host     HostConfig     `toml:"host"`
	Pool     PoolConfig     `toml:"pool"`
	Serve    ServeConfig    `toml:"serve"`
}

// AuctionConfig is [auction].
type AuctionConfig struct {
	F       float64         `toml:"f"`
	Settle  Duration        `toml:"settle"`
	Payment arbiter.Payment `toml:"payment"`
	Debt    Duration        `toml:"debt_half_life"`
}

// LeaseConfig is [lease].
type LeaseConfig struct {
	Length    Duration           `toml:"length"`
	Grid      Duration           `toml:"grid"` // 0: a quarter of Length
	Least     Duration           `toml:"least"`
	Grace     Duration           `toml:"grace"`
	TakeUp    Duration           `toml:"take_up"`
	Restart   Duration           `toml:"restart_cost"`
	Reclaim   arbiter.Reclaim    `toml:"reclaim"`
	IdleAfter Duration           `toml:"idle_after"`
	Idle      arbiter.IdlePolicy `toml:"idle"`
}

// GatherConfig is [gather].
type GatherConfig struct {
	After Duration `toml:"after"`
	Limit Duration `toml:"limit"`
}

// ShareConfig is [share].
type ShareConfig struct {
	Entity arbiter.Entity `toml:"entity"`
}

// FairnessConfig is [fairness].
type FairnessConfig struct {
	Reference arbiter.Reference `toml:"reference"`
	Target    float64           `toml:"target"`
	Aim       arbiter.Aim       `toml:"aim"`
}

// HostConfig is [host].
type HostConfig struct {
	Tick          Duration `toml:"tick"`
	FallbackAfter Duration `toml:"fallback_after"`
}

// PoolConfig is [pool].
type PoolConfig struct {
	Nodes map[string]string `toml:"nodes"` // YARN's name of a node: Slurm's
}

// ServeConfig is [serve].
type ServeConfig struct {
	Socket string `toml:"socket"`
	Log    string `toml:"log"`    // error, info or debug
	Record string `toml:"record"` // file for themis sim replay; "": off
}

// Duration is a time.Duration that TOML writes with its unit, as "10m".
type Duration time.Duration

// UnmarshalText reads a duration; a bare number is refused.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`%q is not a duration: write a number with its unit in quotes, such as "90s", "10m" or "1h30m"`, text)
	}
	*d = Duration(v)
	return nil
}

// DefaultConfig is what an empty file means.
func DefaultConfig() Config {
	a := arbiter.Defaults()
	return Config{
		Auction: AuctionConfig{F: a.F, Settle: Duration(a.Settle), Payment: a.Payment, Debt: Duration(a.DebtHalf)},
		Lease: LeaseConfig{Length: Duration(a.Lease), Least: Duration(a.LeaseMin), Grace: Duration(a.Grace),
			TakeUp: Duration(a.TakeUp), Restart: Duration(a.Restart), Reclaim: a.Reclaim, IdleAfter: Duration(a.IdleAfter), Idle: a.Idle},
		Gather:   GatherConfig{After: Duration(a.GatherAfter), Limit: Duration(a.GatherLimit)},
		Share:    ShareConfig{Entity: a.Entity},
		Fairness: FairnessConfig{Reference: a.Reference, Target: a.Target, Aim: a.Aim},
		Pool:     PoolConfig{Nodes: map[string]string{}},
		Host:     HostConfig{Tick: Duration(time.Second), FallbackAfter: Duration(time.Minute)},
		Serve:    ServeConfig{Log: "info"},
	}
}

// LoadConfig reads themis.toml. A missing file means all defaults. Unknown
// keys, wrong units and impossible values are refused, each with its line.
func LoadConfig(path string) (Config, error) {
	c := DefaultConfig()
	text, err := os.ReadFile(path)
	if path == "" || errors.Is(err, os.ErrNotExist) {
		return c, nil
	} else if err != nil {
		return c, err
	}
	if err := c.parse(string(text)); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func (c *Config) parse(text string) error {
	meta, err := toml.Decode(text, c)
	if err != nil {
		var at toml.ParseError
		if errors.As(err, &at) {
			msg := at.Message
			if msg == "" {
				msg = strings.TrimPrefix(at.Error(), "toml: ")
				msg = msg[strings.Index(msg, ": ")+2:]
			}
			return fmt.Errorf("line %d: %s", at.Position.Line, msg)
		}
		return errors.New(wrongType.ReplaceAllString(err.Error(), "line $1: $2 must not be a $3; want a $4"))
	}
	var problems []error
	for _, key := range meta.Undecoded() {
		problems = append(problems, fmt.Errorf("line %d: unknown key %s%s", lineOf(text, key), key, nearest(key)))
	}
	for _, check := range c.checks() {
		if !check.ok {
			key := strings.Split(check.key, ".")
			problems = append(problems, fmt.Errorf("line %d: %s %s", lineOf(text, key), check.key, check.form))
		}
	}
	return errors.Join(problems...)
}

// wrongType is how the library words a value of the wrong type.
var wrongType = regexp.MustCompile(`^toml: line (\d+) \(last key "(.*)"\): incompatible types: TOML value has type (\w+); destination has type (\w+)$`)

type check struct {
	key  string
	ok   bool
	form string
}

func (c *Config) checks() []check {
	twice, named := "", map[string]bool{}
	for _, n := range c.Pool.Nodes {
		if named[n] {
			twice = n
		}
		named[n] = true
	}
	positive := func(key string, d Duration) check {
		return check{key, d > 0, fmt.Sprintf(`is %q: it must be above zero`, time.Duration(d))}
	}
	return []check{
		{"auction.f", c.Auction.F >= 0 && c.Auction.F < 1, fmt.Sprintf("is %g: the share of apps that stay out of a round must be at least 0 and below 1", c.Auction.F)},
		{"auction.settle", c.Auction.Settle >= 0, "must not be negative"},
		{"auction.payment", c.Auction.Payment == arbiter.PayLease || c.Auction.Payment == arbiter.PayGPUs || c.Auction.Payment == arbiter.PayNone,
			fmt.Sprintf(`is %q: it must be "lease", "gpus" or "none"`, c.Auction.Payment)},
		positive("auction.debt_half_life", c.Auction.Debt),
		positive("lease.length", c.Lease.Length),
		{"lease.least", c.Lease.Least > 0 && (c.Lease.Least <= c.Lease.Length || c.Lease.Least == DefaultConfig().Lease.Least),
			fmt.Sprintf(`is %q: it must be above zero and at most lease.length`, time.Duration(c.Lease.Least))},
		{"lease.grid", c.Lease.Grid >= 0 && c.Lease.Grid <= c.Lease.Length, fmt.Sprintf(`is %q: it must be at most lease.length; "0s" is a quarter of it`, time.Duration(c.Lease.Grid))},
		{"lease.grace", c.Lease.Grace >= 0, "must not be negative"},
		positive("lease.take_up", c.Lease.TakeUp),
		{"lease.restart_cost", c.Lease.Restart >= 0, "must not be negative"},
		{"lease.reclaim", c.Lease.Reclaim == arbiter.ReclaimDeclared || c.Lease.Reclaim == arbiter.ReclaimRequeueable || c.Lease.Reclaim == arbiter.ReclaimNever,
			fmt.Sprintf(`is %q: it must be "declared", "requeueable" or "never"`, c.Lease.Reclaim)},
		positive("lease.idle_after", c.Lease.IdleAfter),
		{"lease.idle", c.Lease.Idle == arbiter.IdleWarn || c.Lease.Idle == arbiter.IdleReclaim, fmt.Sprintf(`is %q: it must be "warn" or "reclaim"`, c.Lease.Idle)},
		{"gather.after", c.Gather.After >= 0, "must not be negative"},
		positive("gather.limit", c.Gather.Limit),
		{"share.entity", c.Share.Entity == arbiter.ByUser || c.Share.Entity == arbiter.ByAccount || c.Share.Entity == arbiter.ByApp,
			fmt.Sprintf(`is %q: it must be "user", "account" or "app"`, c.Share.Entity)},
		{"fairness.reference", c.Fairness.Reference == arbiter.ReferenceFluid || c.Fairness.Reference == arbiter.ReferencePaper,
			fmt.Sprintf(`is %q: it must be "fluid" or "paper"`, c.Fairness.Reference)},
		{"fairness.target", c.Fairness.Target >= 1 && c.Fairness.Target <= 10, fmt.Sprintf("is %g: the worst rho that is aimed at must be from 1 to 10", c.Fairness.Target)},
		{"fairness.aim", c.Fairness.Aim == arbiter.AimTurnaround || c.Fairness.Aim == arbiter.AimMakespan,
			fmt.Sprintf(`is %q: it must be "turnaround" or "makespan"`, c.Fairness.Aim)},
		{"host.tick", c.Host.Tick >= Duration(200*time.Millisecond) && c.Host.Tick <= Duration(10*time.Second),
			fmt.Sprintf(`is %q: it must be between "200ms" and "10s"`, time.Duration(c.Host.Tick))},
		{"host.fallback_after", c.Host.FallbackAfter >= 3*c.Host.Tick, fmt.Sprintf(`is %q: it must be at least three times host.tick`, time.Duration(c.Host.FallbackAfter))},
		{"pool.nodes", twice == "", fmt.Sprintf("names %s for two nodes of YARN's: a node is one of each cluster", twice)},
		{"serve.socket", c.Serve.Socket == "" || filepath.IsAbs(c.Serve.Socket) && len(c.Serve.Socket) < 108,
			fmt.Sprintf("is %q: it must be an absolute path of fewer than 108 bytes", c.Serve.Socket)},
		{"serve.record", c.Serve.Record == "" || filepath.IsAbs(c.Serve.Record),
			fmt.Sprintf(`is %q: it must be an absolute path, or "" for no recording`, c.Serve.Record)},
		{"serve.log", c.Serve.Log == "error" || c.Serve.Log == "info" || c.Serve.Log == "debug", fmt.Sprintf(`is %q: it must be "error", "info" or "debug"`, c.Serve.Log)},
	}
}

// Arbiter is the part of the configuration that the arbiter decides by.
func (c *Config) Arbiter() arbiter.Config {
	return arbiter.Config{
		F: c.Auction.F, Settle: time.Duration(c.Auction.Settle), Payment: c.Auction.Payment, DebtHalf: time.Duration(c.Auction.Debt),
		Lease: time.Duration(c.Lease.Length), LeaseMin: time.Duration(c.Lease.Least), Grace: time.Duration(c.Lease.Grace),
		TakeUp: time.Duration(c.Lease.TakeUp), Restart: time.Duration(c.Lease.Restart), Reclaim: c.Lease.Reclaim,
		GatherAfter: time.Duration(c.Gather.After), GatherLimit: time.Duration(c.Gather.Limit), Entity: c.Share.Entity,
		Reference: c.Fairness.Reference, Target: c.Fairness.Target, Aim: c.Fairness.Aim,
		IdleAfter: time.Duration(c.Lease.IdleAfter), Idle: c.Lease.Idle,
		Grid: time.Duration(cmp.Or(c.Lease.Grid, c.Lease.Length/4)),
	}
}

// lineOf finds the line that sets a key, 1 if it cannot be told.
func lineOf(text string, key []string) int {
	section := ""
	want := strings.Join(key[:len(key)-1], ".")
	last := regexp.MustCompile(`^\s*"?` + regexp.QuoteMeta(key[len(key)-1]) + `"?\s*[=\]]`)
	header := regexp.MustCompile(`^\s*\[\s*"?([^\]"]*)"?\s*\]`)
	for i, line := range strings.Split(text, "\n") {
		if m := header.FindStringSubmatch(line); m != nil {
			section = strings.TrimSpace(m[1])
			if section == strings.Join(key, ".") {
				return i + 1
			}
		} else if section == want && last.MatchString(line) || strings.HasPrefix(strings.TrimSpace(line), strings.Join(key, ".")) {
			return i + 1
		}
	}
	return 1
}

// nearest suggests the known key that an unknown one was probably meant to be.
func nearest(key []string) string {
	best, least := "", 4
	for _, c := range (&Config{}).checks() {
		if d := distance(strings.Join(key, "."), c.key); d < least {
			best, least = c.key, d
		}
	}
	if best == "" {
		return "; etc/themis.toml lists all keys"
	}
	return "; did you mean " + best + "?"
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(row[j]+1, row[j-1]+1, cost)
		}
	}
	return row[len(b)]
}
