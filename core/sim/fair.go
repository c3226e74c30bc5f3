// SPDX-License-Identifier: Apache-2.0

package sim

import "cmp"

// fair is YARN's FairScheduler: users share equally (weights and minimum shares
// are not set), and each user's apps.
func fair(w *World) *yarn {
	y := newYarn(w)
	y.leaf = func(j *Job) string { return j.App.ID }
	y.user = func(j *Job) string { return cmp.Or(j.User, j.Account, j.App.ID) }
	y.key = func(a, b *leaf) int { return cmp.Or(*a.user-*b.user, a.held-b.held) }
	return y
}
