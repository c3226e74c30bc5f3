// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"time"
)

// ourForm is the form that always works; hints point to it.
const ourForm = `a CSV file always works: a header id,submit_s,runtime_s,gpus and, if known, app,user,account,limit_s,model,elastic,full_s`

// ours is the form of this project: CSV with a header, or JSON {"jobs": [...]}
// of the same names.
//
//	id         unique
//	app        jobs of one app serve one goal; empty: a job alone
//	user, account, model
//	submit_s   seconds from any zero
//	runtime_s  seconds on all its GPUs in one machine
//	gpus       of the gang
//	limit_s    time limit, seconds
//	elastic    true: runs on fewer GPUs too
//	full_s     runtime_s had its app not stopped it early, seconds
var ours = format{
	name: "themis", about: "CSV or JSON: id,app,user,account,submit_s,runtime_s,gpus[,limit_s,model,elastic,full_s]",
	form: ourForm,
	sniff: func(first, head string) bool {
		return header(",", "runtime_s")(first, head) || header(",", "submit_s")(first, head) || object("runtime_s", "submit_s")(first, head)
	},
	read: func(in *input) error {
		if isJSON(in.data) {
			return in.list(ourJob)
		}
		return in.table(commas(in.data), []string{"id", "submit_s", "runtime_s", "gpus"}, ourJob)
	},
}

func ourJob(r *row) (Job, error) {
	j := Job{
		ID: r.text("id"), App: r.text("app"), User: r.text("user"), Account: r.text("account"), Model: r.text("model"),
		Submit: r.span("submit_s", time.Second), Runtime: r.span("runtime_s", time.Second),
		GPUs: r.count("gpus"), Elastic: r.flag("elastic"),
	}
	if r.text("limit_s") != "" {
		j.Limit = r.span("limit_s", time.Second)
	}
	if r.text("full_s") != "" {
		j.Full = r.span("full_s", time.Second)
	}
	return j, r.err
}

func isJSON(data []byte) bool {
	for _, b := range data {
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b == '{' || b == '['
		}
	}
	return false
}
