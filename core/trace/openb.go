// SPDX-License-Identifier: Apache-2.0

package trace

import "time"

// openb is a pod list of alibaba/clusterdata (gpu 2023): seconds from any zero.
// A pod runs from scheduled_time to deletion_time.
var openb = format{
	name: "openb", about: "Alibaba's openb_pod_list CSV, pods with GPUs that were scheduled and deleted",
	form:  "the form is: name,num_gpu,gpu_milli,creation_time,scheduled_time,deletion_time among the columns, seconds",
	sniff: header(",", "num_gpu", "creation_time", "scheduled_time", "deletion_time"),
	read: func(in *input) error {
		shared := 0
		err := in.table(commas(in.data), []string{"name", "num_gpu", "creation_time", "scheduled_time", "deletion_time"}, func(r *row) (Job, error) {
			switch {
			case r.count("num_gpu") == 0 && r.err == nil:
				return Job{}, in.leave("no GPUs")
			case r.text("scheduled_time") == "" || r.text("deletion_time") == "":
				return Job{}, in.leave("never scheduled or never deleted, so their run time is unknown")
			}
			if milli, ok := number(r.text("gpu_milli")); ok && milli > 0 && milli < 1000 {
				shared++
			}
			return Job{
				ID: r.text("name"), Account: r.text("qos"), GPUs: r.count("num_gpu"), Submit: r.span("creation_time", time.Second),
				Runtime: r.span("deletion_time", time.Second) - r.span("scheduled_time", time.Second),
			}, r.err
		})
		if shared > 0 {
			in.note("A pod that shares a GPU (gpu_milli below 1000) counts as having a whole one: %s.", several(shared, "pod"))
		}
		return err
	},
}
