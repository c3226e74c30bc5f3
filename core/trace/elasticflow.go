// SPDX-License-Identifier: Apache-2.0

package trace

import "time"

// elasticFlow is the form of microsoft/elasticflow-traces, a file a cluster:
// seconds from any zero.
var elasticFlow = format{
	name: "elasticflow", about: "ElasticFlow's CSV: job_id,submission_time,duration,num_gpu; its archive as FILE.tar.gz:cluster01",
	form:  "the form is: job_id,submission_time,duration,num_gpu as in 5dc7d9cd,2266647,604,16",
	sniff: header(",", "job_id", "submission_time", "duration"),
	read: func(in *input) error {
		in.note("Each job is an app of its own.")
		return in.table(commas(in.data), []string{"job_id", "submission_time", "duration", "num_gpu"}, func(r *row) (Job, error) {
			return Job{
				ID: r.text("job_id"), Submit: r.span("submission_time", time.Second),
				Runtime: r.span("duration", time.Second), GPUs: r.count("num_gpu"),
			}, r.err
		})
	},
}
