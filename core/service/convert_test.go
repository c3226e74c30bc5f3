// SPDX-License-Identifier: Apache-2.0

package service

import (
	"reflect"
	"testing"
	"time"

	"themis/core/cluster"
)

// TestHintOf: every key of a hint arrives.
func TestHintOf(t *testing.T) {
	got := hintOf("themis: app=x runtime=3h remaining=2h progress=0.5 checkpoint=10m model=vgg16 place=1,.9 speedup=1:1,2:1.9 speed=a100:1,v100:.45 order=short")
	want := cluster.Hint{App: "x", Runtime: 3 * time.Hour, Remaining: 2 * time.Hour, Progress: 0.5, Checkpoint: 10 * time.Minute, Model: "vgg16",
		Place: []float64{1, .9}, Speedup: []cluster.SpeedPoint{{GPUs: 1, Speed: 1}, {GPUs: 2, Speed: 1.9}},
		Speed: []cluster.TypeSpeed{{Type: "a100", Speed: 1}, {Type: "v100", Speed: .45}}, Order: "short"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := hintOf("themis: app=x speedup=8:1,4:2"); !reflect.DeepEqual(got, cluster.Hint{}) {
		t.Errorf("a malformed hint gave %+v", got)
	}
}
