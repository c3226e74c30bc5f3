// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// slurmJobs is what reading the jobs of a Slurm cluster comes upon.
type slurmJobs struct {
	in                    *input
	running, unread, each int
	runs                  map[string]int // by job id
	more                  bool           // some ran more than once
}

func (s *slurmJobs) notes() {
	if s.more {
		s.join()
	}
	if s.running > 0 {
		s.in.note("Still running, taken as ending then: %s.", several(s.running, "job"))
	}
	if s.unread > 0 {
		s.in.note("A themis hint that cannot be read is passed over: %s.", several(s.unread, "job"))
	}
	if s.each > 0 {
		s.in.note("GPUs stated by node are multiplied by the number of nodes: %s.", several(s.each, "job"))
	}
}

// again names a further run of a requeued job.
func (s *slurmJobs) again(j *Job) {
	if s.runs == nil {
		s.runs = map[string]int{}
	}
	s.runs[j.ID]++
	if n := s.runs[j.ID]; n > 1 {
		j.ID += "#" + strconv.Itoa(n)
		s.more = true
	}
}

// join makes the runs of a requeued job one app.
func (s *slurmJobs) join() {
	for i := range s.in.t.Jobs {
		j := &s.in.t.Jobs[i]
		if id, _, _ := strings.Cut(j.ID, "#"); j.App == "" && s.runs[id] > 1 {
			j.App = j.User + "/" + id
		}
	}
	s.in.note("Some jobs ran more than once; each run is a job, of the same app.")
}

// perNode multiplies GPUs of a node by the number of nodes.
func (s *slurmJobs) perNode(gpus int, nodes string) int {
	n, err := strconv.Atoi(nodes)
	if gpus == 0 || err != nil || n < 2 || n > gpusMost {
		return gpus
	}
	s.each++
	return gpus * n
}

func unstarted(s string) bool {
	return s == "" || strings.EqualFold(s, "Unknown") || s == "None" || s == "N/A"
}

// gpusOfTRES counts the GPUs of cpu=8,gres/gpu=4,gres/gpu:a100=4: the number
// without a type is that of all types. 0 if there are none.
func gpusOfTRES(s string) int {
	all, typed := 0, 0
	for _, part := range strings.Split(s, ",") {
		key, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		switch {
		case err != nil || n < 0 || n > gpusMost:
		case key == "gres/gpu":
			all = n
		case strings.HasPrefix(key, "gres/gpu:"):
			typed += n
		}
	}
	return max(all, typed)
}

// gresGPU is one kind of GPU in gpu:a100:4(S:0-1),gpu:2: its type and number.
var gresGPU = regexp.MustCompile(`(?:^|,|gres[:/])gpu(?::([\w.-]*[A-Za-z_.-][\w.-]*))?(?:[:=](\d{1,7}))?(?:[,(]|$)`)

// gpusOfGRES counts the GPUs of a GRES list; gpu alone is 1.
func gpusOfGRES(s string) int {
	n := 0
	for s != "" {
		m := gresGPU.FindStringSubmatchIndex(s)
		if m == nil {
			break
		}
		if m[4] < 0 {
			n++
		} else if k, err := strconv.Atoi(s[m[4]:m[5]]); err == nil {
			n += k
		}
		s = s[max(m[1]-1, 1):] // a comma may begin the next
	}
	return n
}

// slurmSpan reads [DD-]HH:MM:SS or MM:SS.mmm.
func (r *row) slurmSpan(col string) time.Duration {
	d, ok := slurmSpan(r.text(col))
	if !ok {
		r.wrong(col, "must be a time such as 1-02:03:04, 02:03:04 or 03:04.500")
	}
	return d
}

func slurmSpan(s string) (time.Duration, bool) {
	days, clock, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, clock = "0", s
	}
	parts := strings.Split(clock, ":")
	if n := len(parts); n != 3 && (n != 2 || hasDays) {
		return 0, false
	}
	total, ok := number(days)
	total *= 24
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	for i, p := range parts {
		n, good := number(p)
		ok = ok && good && (i == 0 || n < 60)
		if i > 0 {
			total *= 60
		}
		total += n
	}
	if !ok || !(total <= (2 * timeMost).Seconds()) {
		return 0, false
	}
	return time.Duration(total * 1e9), true
}

// slurmLimit reads a time limit; unlimited and not stated are 0. In minutes it
// is a plain number.
func (r *row) slurmLimit(col string, minutes bool) time.Duration {
	switch s := r.text(col); {
	case s == "" || strings.EqualFold(s, "UNLIMITED") || strings.EqualFold(s, "Partition_Limit") || strings.EqualFold(s, "INVALID"):
		return 0
	case minutes:
		return r.span(col, time.Minute)
	}
	return r.slurmSpan(col)
}
