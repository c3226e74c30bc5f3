// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios plays testdata/scenario/*.txt; -rewrite takes what happens as expected.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenario", func(t *testing.T, path string) {
		w := newWorld(t.Fatalf)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return w.command(d)
		})
	})
}
