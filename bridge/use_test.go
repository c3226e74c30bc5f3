// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"reflect"
	"testing"
	"time"
)

// FuzzUse: whatever an admin writes into a node's Extra is read or refused, and what
// is read comes out the same when it is written and read again.
func FuzzUse(f *testing.F) {
	f.Add("themis: gpus 300s to 1733200000: 0=87% 1=0%,1733190000 3=40%")
	f.Add("themis: gpus 0s to 1: 0=1%")
	f.Add("themis: gpus 1s to 1: 0=101%")
	f.Add("ticket 17")
	f.Fuzz(func(t *testing.T, text string) {
		u, ok := ParseUse(text)
		if !ok {
			return
		}
		if again, ok := ParseUse(u.String()); !ok || !reflect.DeepEqual(u, again) {
			t.Errorf("%q is %+v, then %+v", text, u, again)
		}
		if u.Of < time.Second {
			t.Errorf("%q is of %v", text, u.Of)
		}
	})
}

func TestUse(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0).UTC() }
	want := Use{300 * time.Second, at(1733200000), []GPUUse{{Device: 0, Busy: 87}, {Device: 1, Idle: at(1733190000)}, {Device: 3, Busy: 40}}}
	text := "themis: gpus 300s to 1733200000: 0=87% 1=0%,1733190000 3=40%"
	if got, ok := ParseUse(text); !ok || !reflect.DeepEqual(got, want) || want.String() != text {
		t.Errorf("%q is %+v; %+v is %q", text, got, want, want.String())
	}
	for _, bad := range []string{"", "ticket 17", "themis: gpus", "themis: gpus 300s to 17", "themis: gpus 0s to 17: 0=1%",
		"themis: gpus 1s to 17: 64=1%", "themis: gpus 1s to 17: 0=1", "themis: gpus 1s to 17: 0=101%", "themis: gpus 1s to 17: 0=1%,x", "themis: gpus 1s to 17: 0"} {
		if got, ok := ParseUse(bad); ok {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}
