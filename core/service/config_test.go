// SPDX-License-Identifier: Apache-2.0

package service

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestConfigRefusals(t *testing.T) {
	cases := map[string]string{
		"[auction]\nf = 1.5\n":                                    "line 2: auction.f is 1.5",
		"[auction]\n\nsetle = \"1s\"\n":                           "line 3: unknown key auction.setle; did you mean auction.settle?",
		"[lease]\nlength = 10\n":                                  `line 2: "10" is not a duration`,
		"[lease]\nlength = \"ten minutes\"\n":                     `line 2: "ten minutes" is not a duration`,
		"[lease]\nlength = \"1m\"\nleast = \"2m30s\"\n":           `line 3: lease.least is "2m30s": it must be above zero and at most lease.length`,
		"[lease]\nreclaim = \"always\"\n":                         `line 2: lease.reclaim is "always"`,
		"[share]\nentity = \"group\"\n":                           `line 2: share.entity is "group"`,
		"[fairness]\nreference = \"rho\"\n":                       `line 2: fairness.reference is "rho": it must be "fluid" or "paper"`,
		"[host]\ntick = \"1ms\"\n":                                `line 2: host.tick is "1ms"`,
		"[host]\nfallback_after = \"1s\"\n":                       `line 2: host.fallback_after is "1s"`,
		"[serve]\nsocket = \"rel/path\"\n":                        `line 2: serve.socket is "rel/path"`,
		"[serve]\nrecord = \"run.jsonl\"\n":                       `line 2: serve.record is "run.jsonl": it must be an absolute path`,
		"[auction\nf=1":                                           "line 2:",
		"[nonsense]\nx = 1\n":                                     "unknown key nonsense",
		"[auction]\nf = \"much\"\n":                               "line 2: auction.f must not be a string; want a float",
		"[auction]\npayment = \"gold\"\n[lease]\nreclaim=\"x\"\n": "line 4: lease.reclaim", // all problems at once
	}
	for text, want := range cases {
		path := filepath.Join(t.TempDir(), "themis.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadConfig(path); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	if c, err := LoadConfig(filepath.Join(t.TempDir(), "none.toml")); err != nil || !reflect.DeepEqual(c, DefaultConfig()) {
		t.Errorf("a missing file gave %+v, %v", c, err)
	}
	// The shipped example shows every key with its default.
	c, err := LoadConfig("../../etc/themis.toml")
	if err != nil || !reflect.DeepEqual(c, DefaultConfig()) {
		t.Errorf("etc/themis.toml gave %+v, %v", c, err)
	}
	text, _ := os.ReadFile("../../etc/themis.toml")
	for _, check := range (&Config{}).checks() {
		if lineOf(string(text), strings.Split(check.key, ".")) == 1 && check.key != "serve.socket" {
			t.Errorf("etc/themis.toml does not show %s", check.key)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("[auction]\nf = 0.5\n[lease]\nlength=\"10m\"")
	f.Fuzz(func(t *testing.T, text string) {
		c := DefaultConfig()
		if err := c.parse(text); err == nil {
			for _, check := range c.checks() {
				if !check.ok {
					t.Errorf("%q was taken though %s", text, check.form)
				}
			}
		}
	})
}
