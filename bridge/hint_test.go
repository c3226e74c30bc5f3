// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestParseHint(t *testing.T) {
	good := map[string]Hint{
		"":                       {},
		"just a note":            {},
		"http://themis:8080/run": {},
		"mythemis: app=x":        {},
		"themis: app=sweep7":     {App: "sweep7"},
		"themis:app=sweep7":      {App: "sweep7"},
		"themis: runtime=3h checkpoint=10m model=vgg16": {Runtime: 3 * time.Hour, Checkpoint: 10 * time.Minute, Model: "vgg16"},
		`{"site":"x","t":"themis: runtime=1d12h"}`:      {Runtime: 36 * time.Hour},
		"acct=7; themis: progress=0.43; more":           {Progress: 0.43},
		"themis: place=1,.9,.7,.5":                      {Place: []float64{1, .9, .7, .5}},
		"themis: remaining=2h10m\nthe rest":             {Remaining: 130 * time.Minute},
	}
	for text, want := range good {
		if got, err := ParseHint(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	bad := map[string]string{
		"themis: ":                               "empty",
		"themis: runtime":                        `"runtime" is none of`,
		"themis: colour=red":                     `"colour=red" is none of`,
		"themis: runtime=3":                      "is not a time",
		"themis: runtime=-3h":                    "at least 1s",
		"themis: runtime=99999d":                 "is not a time",
		"themis: progress=1.5":                   "above 0 and at most 1",
		"themis: progress=NaN":                   "above 0 and at most 1",
		"themis: app=a app=b":                    "twice",
		"themis: app=a/b":                        "only letters",
		"themis: app=" + strings.Repeat("x", 65): "1 to 64",
		"themis: place=.5,.9":                    "must not rise",
		"themis: place=1,1,1,1,1":                "more than the 4",
		"themis: app=\xff\xfe":                   "only letters",
	}
	for text, want := range bad {
		_, err := ParseHint(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "the form is: themis: app=") {
			t.Errorf("%q: got %v, want %q and the right form", text, err, want)
		}
	}
}

// FuzzHint: no bytes make the parser panic, loop or give an error that is not
// short printable text.
func FuzzHint(f *testing.F) {
	for _, s := range []string{"themis: app=x runtime=3h", "themis:", "themis: \x00", "x themis: place=1,.5", "themis:themis:themis: progress=.5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHint(s)
		if err != nil {
			if msg := err.Error(); len(msg) > 1000 || !utf8.ValidString(msg) || strings.ContainsAny(msg, "\x00\x1b\n\r") {
				t.Errorf("error text %q", msg)
			}
			return
		}
		if h.Progress < 0 || h.Progress > 1 || h.Runtime < 0 || len(h.App) > hintMost {
			t.Errorf("%q gave %+v", s, h)
		}
	})
}
