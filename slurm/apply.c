/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * apply.c - what the agent itself changes in jobs: priorities that moved or
 * were overwritten, the sentence in the reason, the end of leases, and what is to
 * be told of jobs that run.
 *
 * Jobs are compared under the read lock; only those that differ are visited
 * again under the write lock, some at a time.
 */
#include <signal.h>

#include "internal.h"

#define CHUNK 200
#define RETRY_NS 5000000000ull
/* All steps and the batch script; without a flag slurmctld signals the steps
 * alone, and the script's trap would not run. */
#define WHOLE_JOB KILL_FULL_JOB

/* What the schedulers say of node availability is stale as soon as they have
 * passed the job by, and more of a riddle than an answer. */
static bool _may_explain(const job_record_t *job)
{
	return (job->state_reason == WAIT_NODE_NOT_AVAIL) ||
	       (job->state_reason == WAIT_NO_REASON) ||
	       (job->state_reason == WAIT_PRIORITY) ||
	       (job->state_reason == WAIT_RESOURCES) || reason_is_ours(job);
}

static bool _reason_differs(const job_record_t *job, const struct job_key *key,
			    bool granted)
{
	char sentence[SENTENCE_LEN];

	if (!job->priority || granted || !agent_governs())
		return reason_is_ours(job);
	if (!_may_explain(job))
		return false;
	reason_sentence(key, sentence);
	return xstrcmp(job->state_desc, sentence) != 0;
}

static bool _priority_differs(const job_record_t *job,
			      const struct job_key *key)
{
	const uint32_t *array = themis_priority_array(job);
	uint32_t wanted = gpu_priority(key);

	if (!job->priority || job->direct_set_prio)
		return false;
	return (job->priority != wanted) || (array && (array[0] != wanted));
}

/* A job whose grant came or went cannot wait; ranks and sentences can. */
static bool _urgent(const job_record_t *job, bool granted)
{
	bool was = (job->priority >= (1u << 30)) && !job->direct_set_prio;

	return (was != granted) || (granted == reason_is_ours(job)) ||
	       reason_is_empty(job);
}

static bool _needs_write(const job_record_t *job, enum scan scan,
			 uint32_t *granted_count)
{
	bool priorities = agent_owns_priorities() && agent_governs();
	struct job_key key = job_key(job);
	bool granted;

	if (scan == SCAN_RESET)
		return true;
	if (!job_wants_gpus(job))
		return priorities && priority_is_stale(job);
	granted = agent_governs() && (table_grant(&key, NULL, NULL) >= 0);
	if (granted)
		(*granted_count)++;
	if ((scan == SCAN_URGENT) && !_urgent(job, granted))
		return false;
	return (priorities && _priority_differs(job, &key)) ||
	       _reason_differs(job, &key, granted);
}

static void _add(struct worklist *list, uint32_t id)
{
	if (list->count == list->size) {
		list->size = list->size ? 2 * list->size : 256;
		xrecalloc(list->ids, list->size, sizeof(*list->ids));
	}
	list->ids[list->count++] = id;
}

extern void apply_scan(struct worklist *list, enum scan scan)
{
	ListIterator jobs = list_iterator_create(job_list);
	job_record_t *job;

	list->count = list->granted = 0;
	while ((job = list_next(jobs))) {
		if (IS_JOB_PENDING(job) && job->details &&
		    _needs_write(job, scan, &list->granted))
			_add(list, job->job_id);
	}
	list_iterator_destroy(jobs);
}

/* Without a core binding it, a job gets multifactor's own priority. */
static void _write_priority(job_record_t *job, const struct job_key *key)
{
	uint32_t *array = themis_priority_array(job);
	int n = array ? themis_priority_count(job) : 0;

	if (!job->priority || job->direct_set_prio)
		return;
	if (!job_wants_gpus(job) || !agent_governs()) {
		job->priority = priority_g_set(job->priority, job);
	} else {
		job->priority = gpu_priority(key);
		for (int i = 0; i < n; i++)
			array[i] = job->priority;
	}
	last_job_update = time(NULL);
}

static void _write_job(job_record_t *job)
{
	struct job_key key = job_key(job);
	bool granted = table_grant(&key, NULL, NULL) >= 0;
	char sentence[SENTENCE_LEN];

	if (agent_owns_priorities())
		_write_priority(job, &key);
	if (!job_wants_gpus(job))
		return;
	if (!_reason_differs(job, &key, granted))
		return;
	if (!job->priority || granted || !agent_governs()) {
		reason_clear(job);
		return;
	}
	reason_sentence(&key, sentence);
	reason_set(job, sentence);
}

extern void apply_write(struct worklist *list)
{
	/* multifactor looks at nodes and partitions for its factors. */
	slurmctld_lock_t locks = { .conf = READ_LOCK, .job = WRITE_LOCK,
				   .node = READ_LOCK, .part = READ_LOCK };
	uint32_t done = 0;

	while ((done < list->count) && !slurmctld_config.shutdown_time) {
		uint32_t end = MIN(list->count, done + CHUNK);
		uint64_t start;

		lock_slurmctld(locks);
		start = clock_ns();
		for (; done < end; done++) {
			job_record_t *job = find_job_record(list->ids[done]);

			if (job && IS_JOB_PENDING(job) && job->details)
				_write_job(job);
		}
		hook_count(HOOK_WRITE_LOCK, start);
		unlock_slurmctld(locks);
	}
}

/* ---- the end of leases ---- */

/* What has been done about leases that end: each job is warned once, and a
 * requeue that did not take is tried again only after a while. */
struct ending {
	uint64_t lease, requeued_ns;
	bool warned;
};
static struct {
	struct ending *list;
	uint32_t count, size;
} endings;

static struct ending *_ending(uint64_t lease)
{
	for (uint32_t i = 0; i < endings.count; i++) {
		if (endings.list[i].lease == lease)
			return &endings.list[i];
	}
	if (endings.count == endings.size) {
		endings.size = endings.size ? 2 * endings.size : 64;
		xrecalloc(endings.list, endings.size, sizeof(*endings.list));
	}
	endings.list[endings.count] = (struct ending) { .lease = lease };
	return &endings.list[endings.count++];
}

/* Forgets leases the core does not mention any more. */
static void _forget_endings(const themis_directives *directives)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < endings.count; i++) {
		for (uint32_t r = 0; r < directives->n_reclaims; r++) {
			if (directives->reclaims[r].lease ==
			    endings.list[i].lease) {
				endings.list[kept++] = endings.list[i];
				break;
			}
		}
	}
	endings.count = kept;
}

static job_record_t *_find_job(uint32_t id, uint32_t task)
{
	return (task == THEMIS_NONE) ? find_job_record(id) :
				       find_job_array_rec(id, task);
}

static void _warn(job_record_t *job, const themis_reclaim *reclaim)
{
	info("themis: lease of %pJ ends, sending it %s: %s", job,
	     job->warn_signal ? "its warning signal" : "SIGTERM",
	     reclaim->why ?: "");
	if (job->warn_signal) {
		job->warn_flags &= ~WARN_SENT;
		send_job_warn_signal(job, true);
		/* If it keeps its GPUs after all, its own time is still to come. */
		job->warn_flags &= ~WARN_SENT;
	} else {
		job_signal(job, SIGCONT, WHOLE_JOB, 0, false);
		job_signal(job, SIGTERM, WHOLE_JOB, 0, false);
	}
}

static void _requeue(job_record_t *job, const themis_reclaim *reclaim)
{
	uint32_t job_id = job->job_id;
	int rc;

	info("themis: requeueing %pJ: %s", job, reclaim->why ?: "");
	rc = job_requeue(0, job_id, NULL, true, 0);
	if (rc != SLURM_SUCCESS)
		error("themis: cannot requeue job %u: %s", job_id,
		      slurm_strerror(rc));
}

static bool _is_due(const themis_reclaim *reclaim)
{
	const struct ending *ending = _ending(reclaim->lease);

	if (reclaim->phase == THEMIS_RECLAIM_WARN)
		return !ending->warned;
	return !ending->requeued_ns ||
	       (clock_ns() - ending->requeued_ns > RETRY_NS);
}

static void _reclaim(const themis_reclaim *reclaim)
{
	job_record_t *job = _find_job(reclaim->id, reclaim->task);
	struct ending *ending = _ending(reclaim->lease);

	if (reclaim->phase == THEMIS_RECLAIM_REQUEUE)
		ending->requeued_ns = clock_ns();
	if (!job || IS_JOB_COMPLETING(job) ||
	    (!IS_JOB_RUNNING(job) && !IS_JOB_SUSPENDED(job)))
		return;
	if (reclaim->phase == THEMIS_RECLAIM_REQUEUE) {
		_requeue(job, reclaim);
	} else if (!IS_JOB_SUSPENDED(job)) { /* it could not hear a signal */
		ending->warned = true;
		_warn(job, reclaim);
	}
}

extern void apply_reclaims(void)
{
	/* As _slurm_rpc_requeue() takes them. */
	slurmctld_lock_t locks = { .conf = READ_LOCK, .job = WRITE_LOCK,
				   .node = WRITE_LOCK, .part = READ_LOCK,
				   .fed = READ_LOCK };
	const themis_directives *directives = table_directives();
	bool due = false;
	uint64_t start;

	if (!directives || !agent_governs())
		return;
	_forget_endings(directives);
	for (uint32_t i = 0; !due && (i < directives->n_reclaims); i++)
		due = _is_due(&directives->reclaims[i]);
	if (!due)
		return;
	lock_slurmctld(locks);
	start = clock_ns();
	for (uint32_t i = 0; (i < directives->n_reclaims) &&
			     !slurmctld_config.shutdown_time; i++) {
		if (_is_due(&directives->reclaims[i]))
			_reclaim(&directives->reclaims[i]);
	}
	hook_count(HOOK_WRITE_LOCK, start);
	unlock_slurmctld(locks);
}

/* ---- what is told of running jobs ---- */

/* The AdminComment of an admin is left alone. */
static bool _note_is_ours(const job_record_t *job)
{
	return job->admin_comment && !xstrncmp(job->admin_comment, THEMIS_SAYS,
					       strlen(THEMIS_SAYS));
}

static const char *_note_of(const themis_directives *directives,
			    const job_record_t *job)
{
	struct job_key key = job_key(job);

	for (uint32_t i = 0; i < directives->n_notes; i++) {
		if ((directives->notes[i].id == key.id) &&
		    (directives->notes[i].task == key.task))
			return directives->notes[i].why;
	}
	return NULL;
}

static void _note(job_record_t *job, const char *text)
{
	char *note = text ? xstrdup_printf("%s%s", THEMIS_SAYS, text) : NULL;

	if ((!job->admin_comment && !note) ||
	    (job->admin_comment && !_note_is_ours(job)) ||
	    !xstrcmp(job->admin_comment, note)) {
		xfree(note);
		return;
	}
	xfree(job->admin_comment);
	job->admin_comment = note;
	last_job_update = time(NULL);
}

extern void apply_notes(void)
{
	slurmctld_lock_t locks = { .job = WRITE_LOCK };
	static char *told; /* as of the last time; NULL: what an earlier
			    * slurmctld was told is not known */
	const themis_directives *directives = table_directives();
	char *all = NULL;
	ListIterator jobs;
	job_record_t *job;
	uint64_t start;

	if (!directives || !agent_governs())
		return;
	all = xstrdup("");
	for (uint32_t i = 0; i < directives->n_notes; i++)
		xstrfmtcat(all, "%u %u %s\n", directives->notes[i].id,
			   directives->notes[i].task,
			   directives->notes[i].why);
	if (!xstrcmp(all, told)) {
		xfree(all);
		return;
	}
	xfree(told);
	told = all;
	lock_slurmctld(locks);
	start = clock_ns();
	jobs = list_iterator_create(job_list);
	while ((job = list_next(jobs))) {
		if (IS_JOB_RUNNING(job) && job_wants_gpus(job))
			_note(job, _note_of(directives, job));
		else if (IS_JOB_PENDING(job) && _note_is_ours(job))
			_note(job, NULL);
	}
	list_iterator_destroy(jobs);
	hook_count(HOOK_WRITE_LOCK, start);
	unlock_slurmctld(locks);
}
