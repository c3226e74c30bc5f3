// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// curve writes a linear curve of n points.
func curve(n int) string {
	var points []string
	for i := 1; i <= n; i++ {
		points = append(points, fmt.Sprintf("%d:%d.000000", i, i))
	}
	return strings.Join(points, ",")
}

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
		"themis: speedup=1:1,2:1.9,4:3.5,8:6.1":         {Speedup: []Point{{1, 1}, {2, 1.9}, {4, 3.5}, {8, 6.1}}},
		"themis: speedup=65536:.5":                      {Speedup: []Point{{65536, .5}}},
		"themis: speedup=4:100,8:200,16:200":            {Speedup: []Point{{4, 100}, {8, 200}, {16, 200}}},
		"themis: speed=a100:1,v100:.45":                 {Speed: []TypeSpeed{{"a100", 1}, {"v100", .45}}},
		"themis: speed=a100_1g.5gb+me:.1":               {Speed: []TypeSpeed{{"a100_1g.5gb+me", .1}}},
		"themis: speedup=1:1,3:3.000002":                {Speedup: []Point{{1, 1}, {3, 3.000002}}},
		"themis: app=x order=submit":                    {App: "x", Order: "submit"},
		"themis: order=short":                           {Order: "short"},
		"themis: order=long":                            {Order: "long"},
		"themis: order=small":                           {Order: "small"},
		"themis: order=large":                           {Order: "large"},
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
		"themis: order=fifo":                     "is none of submit, short, long, small, large",
		"themis: order=":                         "is none of submit, short, long, small, large",
	}
	for text, want := range bad {
		_, err := ParseHint(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "the form is: themis: app=") {
			t.Errorf("%q: got %v, want %q and the right form", text, err, want)
		}
	}
}

func TestSpeedRefusals(t *testing.T) {
	for value, want := range map[string]string{
		"":                                    `"" is not TYPE:SPEED`,
		"a100":                                `"a100" is not TYPE:SPEED`,
		"1":                                   `"1" is not TYPE:SPEED`,
		"a100:1,":                             `"" is not TYPE:SPEED`,
		":1":                                  `type "" must have 1 to 64 characters`,
		"a/b:1":                               `type "a/b" may have only letters`,
		"a100:":                               `speed "": must be a plain number from 0.001 to 1000, such as .45`,
		"a100:0":                              `speed "0": must be`,
		"a100:.0009":                          `speed ".0009": must be`,
		"a100:1001":                           `speed "1001": must be`,
		"a100:-1":                             `speed "-1": must be`,
		"a100:1e2":                            `speed "1e2": must be`,
		"a100:NaN":                            `speed "NaN": must be`,
		"a100:1:2":                            `speed "1:2": must be`,
		"a100:1,a100:.5":                      "names a100 twice",
		"a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1": "has more than 8 types",
		"a100:\x1b":                           `speed "\x1b": must be`,
	} {
		_, err := ParseHint("themis: speed=" + value)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "speed=a100:1,v100:.45 (separated") {
			t.Errorf("%q: got %v, want %q and the right form", value, err, want)
		}
	}
}

func TestSpeedupRefusals(t *testing.T) {
	for value, want := range map[string]string{
		"":                                     "at least 1 point",
		curve(33):                              "has more than 32 points; a few are enough, what is between is interpolated",
		"1:1,2:1.9,":                           `"" is not a point GPUS:SPEED`,
		"1,2":                                  `"1" is not a point GPUS:SPEED`,
		":1":                                   `"" GPUs: must be a whole number from 1 to 65536`,
		"0:1":                                  `"0" GPUs: must be a whole number`,
		"-1:1":                                 `"-1" GPUs: must be a whole number`,
		"1.5:1":                                `"1.5" GPUs: must be a whole number`,
		"0x4:1":                                `"0x4" GPUs: must be a whole number`,
		"1_0:1":                                `"1_0" GPUs: must be a whole number`,
		"65537:1":                              `"65537" GPUs: must be a whole number`,
		"18446744073709551617:1":               "must be a whole number",
		"8:1,4:2":                              "4 GPUs after 8: the numbers of GPUs must rise",
		"1:1,1:2":                              "1 GPUs after 1: the numbers of GPUs must rise",
		"1:":                                   `speed "": must be a plain number above 0`,
		"1:0":                                  `speed "0": must be a plain number above 0`,
		"1:-1":                                 `speed "-1": must be`,
		"1:+1":                                 `speed "+1": must be`,
		"1:NaN":                                `speed "NaN": must be`,
		"1:Inf":                                `speed "Inf": must be`,
		"1:1e999":                              `speed "1e999": must be`,
		"1:1e3":                                `speed "1e3": must be`,
		"1:0x1p2":                              `speed "0x1p2": must be`,
		"1:1_0":                                `speed "1_0": must be`,
		"1:1:1":                                `speed "1:1": must be`,
		"1:.":                                  `speed ".": must be`,
		"1:1.2.3":                              `speed "1.2.3": must be`,
		"1:" + strings.Repeat("9", 400):        "must be a plain number",
		"1:." + strings.Repeat("0", 400) + "1": "must be a plain number",
		"1:1,2:1.9,4:1.8":                      "a curve that falls, from 1.9 with 2 GPUs to 1.8 with 4",
		"1:1,2:2.1":                            "faster than linear: from 1 with 1 GPUs to 2.1 with 2",
		"4:4,8:8.00001":                        "faster than linear: from 4 with 4 GPUs",
		"1:." + strings.Repeat("0", 320) + "1,2:9999": "faster than linear",
	} {
		_, err := ParseHint("themis: speedup=" + value)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "speedup=1:1,2:1.9,4:3.5 speed=a100:1,v100:.45 (separated") {
			t.Errorf("%q: got %v, want %q and the right form", value, err, want)
		}
	}
}

// TestLongestCurve: the most points, with 6 decimals each, fit into a comment of
// Slurm's 1,024 bytes beside the other keys.
func TestLongestCurve(t *testing.T) {
	const slurmComment = 1024
	text := "themis: app=sweep7 runtime=3h checkpoint=10m place=1,.9,.7,.5 order=short speedup=" + curve(pointsMost)
	if h, err := ParseHint(text); err != nil || len(h.Speedup) != pointsMost || len(text) > slurmComment/2 {
		t.Errorf("%d bytes gave %d points, %v", len(text), len(h.Speedup), err)
	}
}

// FuzzHint: no bytes make the parser panic, loop or give an error that is not
// short printable text.
func FuzzHint(f *testing.F) {
	for _, s := range []string{"themis: app=x runtime=3h", "themis:", "themis: \x00", "x themis: place=1,.5", "themis:themis:themis: progress=.5",
		"themis: speedup=1:1,2:1.9,4:3.5,8:6.1 order=short", "themis: speedup=8:1,4:2", "themis: speedup=1:0x1p2,2:1e999", "themis: speedup=" + curve(33),
		"themis: speedup=1:" + strings.Repeat("\x7f", 80), "themis: speed=a100:1,v100:.45", "themis: speed=a:0x1p2,a:1,:,1g.5gb+me:."} {
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
		if len(h.Speedup) > pointsMost || h.Order != "" && !slices.Contains(orders, h.Order) {
			t.Errorf("%q gave %+v", s, h)
		}
		if len(h.Speed) > typesMost {
			t.Errorf("%q gave %+v", s, h)
		}
		for _, p := range h.Speed {
			if !(p.Speed >= speedLeast && p.Speed <= speedMost) || len(p.Type) > hintMost || p.Type == "" {
				t.Errorf("%q gave %+v", s, h)
			}
		}
		last := Point{0, math.SmallestNonzeroFloat64}
		for _, p := range h.Speedup {
			if p.GPUs <= last.GPUs || p.GPUs > gpusMost || !(p.Speed >= last.Speed && p.Speed <= math.MaxFloat64) {
				t.Errorf("%q gave %+v", s, h)
			}
			last = p
		}
	})
}
