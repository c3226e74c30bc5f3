/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * apply.c - what the agent itself changes in jobs: priorities that moved or
 * were overwritten, the sentence in the reason, and the end of leases.
 *
 * Jobs are compared under the read lock; only those that differ are visited
 * again under the write lock, some at a time.
 */
#include <signal.h>

#include "internal.h"

#define CHUNK 200
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
	granted = agent_governs() && (table_grant(&key, NULL) >= 0);
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
	bool granted = table_grant(&key, NULL) >= 0;
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

/* Leases whose jobs have been warned, so that each is warned once. */
static struct {
	uint64_t *leases;
	uint32_t count, size;
} warned;

static bool _was_warned(uint64_t lease)
{
	for (uint32_t i = 0; i < warned.count; i++) {
		if (warned.leases[i] == lease)
			return true;
	}
	return false;
}

static void _note_warned(uint64_t lease)
{
	if (warned.count == warned.size) {
		warned.size = warned.size ? 2 * warned.size : 64;
		xrecalloc(warned.leases, warned.size, sizeof(uint64_t));
	}
	warned.leases[warned.count++] = lease;
}

/* Forgets leases the core does not mention any more. */
static void _forget_warned(const themis_directives *directives)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < warned.count; i++) {
		for (uint32_t r = 0; r < directives->n_reclaims; r++) {
			if (directives->reclaims[r].lease ==
			    warned.leases[i]) {
				warned.leases[kept++] = warned.leases[i];
				break;
			}
		}
	}
	warned.count = kept;
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
	return (reclaim->phase == THEMIS_RECLAIM_REQUEUE) ||
	       ((reclaim->phase == THEMIS_RECLAIM_WARN) &&
		!_was_warned(reclaim->lease));
}

static void _reclaim(const themis_reclaim *reclaim)
{
	job_record_t *job = _find_job(reclaim->id, reclaim->task);

	if (!job || IS_JOB_COMPLETING(job) ||
	    (!IS_JOB_RUNNING(job) && !IS_JOB_SUSPENDED(job)))
		return;
	if (reclaim->phase == THEMIS_RECLAIM_REQUEUE) {
		_requeue(job, reclaim);
	} else {
		_note_warned(reclaim->lease);
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
	_forget_warned(directives);
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
