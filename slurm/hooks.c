/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * hooks.c - what slurmctld's own threads run of ours, under their locks.
 *
 * Starting jobs. A GPU job without a grant is answered as cons_tres answers
 * when the nodes are busy, so it waits like any other. That also holds for
 * srun --immediate and salloc --immediate: such a job is refused, as on a full
 * cluster, because it is judged in the very call that creates it, before any
 * auction can have heard of it, and to let it pass would let it jump the queue.
 *
 * Planning. Backfill asks when a job "will run". A GPU job without a grant has
 * no answer to that: were it told "now", backfill would try, fail and then keep
 * the nodes for it, and the waiting GPU jobs behind it would seem to lack
 * nodes. So it cannot run in any plan, and a granted one only where its grant
 * is. The same goes for all components of a het job while one of them lacks
 * its grant: backfill starts them one by one, and if one fails it takes the
 * others down and bars them for the life of a credential. Users who ask
 * (sbatch --test-only) get cons_tres's answer.
 *
 * Priorities. With a grant: 2^30 + 65535 - order. Without GPUs: 65536 more than
 * multifactor says. GPUs, but no grant: 65535 - rank, so that those who must
 * wait anyway never hold up a partition. Held jobs and priorities set by hand
 * are left alone. multifactor's decay thread writes its own numbers every
 * PriorityCalcPeriod; the agent puts ours back within a tick.
 */
#include "internal.h"

#define GRANT_BASE (1u << 30)
#define CPU_OFFSET 65536u
#define UNKNOWN_RANK 65533u
#define PREFIX "Themis: "
#define NO_SENTENCE "waiting for the next auction"

static int _is_gpu(void *x, void *arg)
{
	gres_state_t *gres = x;

	(void) arg;
	return !xstrcmp(gres->gres_name, "gpu");
}

extern bool job_wants_gpus(const job_record_t *job)
{
	return job->gres_list_req &&
	       list_find_first(job->gres_list_req, _is_gpu, NULL);
}

/* ---- the reason squeue shows ---- */

/* By the text: some places in slurmctld set a new reason, but leave it. */
extern bool reason_is_ours(const job_record_t *job)
{
	return job->state_desc &&
	       !xstrncmp(job->state_desc, PREFIX, sizeof(PREFIX) - 1);
}

extern bool reason_is_empty(const job_record_t *job)
{
	return !job->state_desc ||
	       !xstrcmp(job->state_desc, PREFIX NO_SENTENCE);
}

extern void reason_set(job_record_t *job, const char *sentence)
{
	if ((job->state_reason == THEMIS_REASON) &&
	    !xstrcmp(job->state_desc, sentence))
		return;
	job->state_reason = THEMIS_REASON;
	xfree(job->state_desc);
	job->state_desc = xstrdup(sentence);
	last_job_update = time(NULL);
}

extern void reason_clear(job_record_t *job)
{
	/* Accounting keeps the last reason that was not Priority or Resources;
	 * there it would appear by the name of the constant we borrowed. */
	if ((job->state_reason_prev_db == THEMIS_REASON) &&
	    (THEMIS_REASON != WAIT_RESOURCES))
		job->state_reason_prev_db = WAIT_NO_REASON;
	if (!reason_is_ours(job))
		return;
	if (job->state_reason == THEMIS_REASON)
		job->state_reason = WAIT_NO_REASON;
	xfree(job->state_desc);
	last_job_update = time(NULL);
}

extern void reason_sentence(const struct job_key *key, char *out)
{
	char why[SENTENCE_LEN - sizeof(PREFIX)] = "";

	table_wait(key, why, sizeof(why));
	for (char *c = why; *c; c++) {
		if ((*c < ' ') || (*c > '~'))
			*c = '?';
	}
	snprintf(out, SENTENCE_LEN, PREFIX "%s",
		 why[0] ? why : NO_SENTENCE);
}

/* ---- starting ---- */

/* A pending array is tested for its first waiting task. If another one holds
 * the grant, that one starts: job_array_split() takes any that waits. */
static bool _granted(job_record_t *job, bitstr_t *nodes, uint32_t *task)
{
	struct job_key key = job_key(job);

	*task = key.task;
	if (table_grant(&key, task, nodes) < 0)
		return false;
	if (key.tasks && (job->array_task_id != NO_VAL))
		job->array_task_id = *task;
	return true;
}

extern bool hook_admit(job_record_t *job, bitstr_t *nodes, List *marks)
{
	struct job_key key = job_key(job);
	char sentence[SENTENCE_LEN];
	uint32_t task;

	if (!job_wants_gpus(job) || !job->details || !job->details->min_nodes)
		return true;
	agent_start_late();
	seen_note(job, nodes);
	if (agent_is_leaving())
		return false;
	if (!agent_governs()) {
		reason_clear(job);
		return true;
	}
	if (!_granted(job, nodes, &task)) {
		reason_sentence(&key, sentence);
		reason_set(job, sentence);
		return false;
	}
	reason_clear(job);
	table_narrow(key.id, task, nodes);
	if (slots_choose(job))
		*marks = table_mark(key.id, task);
	return true;
}

static int _lacks_grant(void *x, void *arg)
{
	job_record_t *job = x;
	struct job_key key = job_key(job);

	(void) arg;
	return IS_JOB_PENDING(job) && job_wants_gpus(job) &&
	       (table_grant(&key, NULL, NULL) < 0);
}

static bool _gang_waits(const job_record_t *job)
{
	job_record_t *leader;

	if (!job->het_job_id)
		return false;
	leader = find_job_record(job->het_job_id);
	return leader && leader->het_job_list &&
	       list_find_first(leader->het_job_list, _lacks_grant, NULL);
}

extern bool hook_plan(job_record_t *job, bitstr_t *nodes)
{
	struct job_key key = job_key(job);
	bool gpus = job_wants_gpus(job);
	uint32_t task;

	if (!(job->bit_flags & BACKFILL_TEST) || (!gpus && !job->het_job_id) ||
	    !job->details || !job->details->min_nodes)
		return true;
	if (gpus)
		seen_note(job, nodes);
	if (!agent_governs())
		return true;
	if (_gang_waits(job))
		return false;
	if (!gpus)
		return true;
	if (table_grant(&key, &task, nodes) < 0)
		return false;
	table_narrow(key.id, task, nodes);
	return true;
}

/* ---- priorities ---- */

/* The priorities we gave to pending jobs without GPUs, by job_id, to notice
 * when somebody else writes one. Open addressing; at most half full. */
struct memo {
	uint32_t job_id, priority, first; /* `first` of the priority array */
};
static struct {
	struct memo *slots;
	uint32_t size, used;
} memory;

static struct memo *_memo(uint32_t job_id)
{
	uint32_t i = (job_id * 2654435761u) & (memory.size - 1);

	while (memory.slots[i].job_id && (memory.slots[i].job_id != job_id))
		i = (i + 1) & (memory.size - 1);
	return &memory.slots[i];
}

static void _rebuild(uint32_t size, bool pending_only)
{
	struct memo *old = memory.slots;
	uint32_t old_size = memory.size;

	memory.slots = xcalloc(size, sizeof(*memory.slots));
	memory.size = size;
	memory.used = 0;
	for (uint32_t i = 0; i < old_size; i++) {
		job_record_t *job;

		if (!old[i].job_id)
			continue;
		if (pending_only && (!(job = find_job_record(old[i].job_id)) ||
				     !IS_JOB_PENDING(job)))
			continue;
		*_memo(old[i].job_id) = old[i];
		memory.used++;
	}
	xfree(old);
}

static void _remember(const job_record_t *job, uint32_t priority)
{
	const uint32_t *array = themis_priority_array(job);
	struct memo *memo;

	if (2 * (memory.used + 1) > memory.size)
		_rebuild(memory.size ? 2 * memory.size : 1024, false);
	memo = _memo(job->job_id);
	if (!memo->job_id)
		memory.used++;
	*memo = (struct memo) { .job_id = job->job_id, .priority = priority,
				.first = array ? array[0] : 0 };
}

extern bool priority_is_stale(const job_record_t *job)
{
	const uint32_t *array = themis_priority_array(job);
	const struct memo *memo;

	if (!job->priority || job->direct_set_prio)
		return false;
	if (!memory.size || !(memo = _memo(job->job_id))->job_id)
		return true;
	/* The schedulers set the priority of a job in several partitions to
	 * that of the partition they try; the array shows who wrote last. */
	return array ? (array[0] != memo->first) :
		       (job->priority != memo->priority);
}

extern void priority_memory_sweep(void)
{
	if (memory.size)
		_rebuild(memory.size, true);
}

extern uint32_t gpu_priority(const struct job_key *key)
{
	int64_t order = table_grant(key, NULL, NULL), rank;

	if (order >= 0)
		return GRANT_BASE + 65535 - MIN(order, 65535);
	rank = table_wait(key, NULL, 0);
	return 65535 - MIN((rank < 0) ? UNKNOWN_RANK : rank, 65534);
}

static uint32_t _plus(uint32_t priority, uint32_t offset)
{
	return (priority > GRANT_BASE - 1 - offset) ?
	       MAX(priority, GRANT_BASE - 1) : priority + offset;
}

static uint32_t _our_priority(job_record_t *job, uint32_t priority)
{
	uint32_t *array = themis_priority_array(job);
	int n = array ? themis_priority_count(job) : 0;

	if (job_wants_gpus(job)) {
		struct job_key key = job_key(job);

		priority = gpu_priority(&key);
		for (int i = 0; i < n; i++)
			array[i] = priority;
		return priority;
	}
	priority = _plus(priority, CPU_OFFSET);
	for (int i = 0; i < n; i++)
		array[i] = _plus(array[i], CPU_OFFSET);
	_remember(job, priority);
	return priority;
}

extern uint32_t hook_priority(themis_priority_fn inner, uint32_t last,
			      job_record_t *job)
{
	uint64_t start = clock_ns();
	bool ours = agent_owns_priorities() && agent_governs();
	uint32_t *array = themis_priority_array(job);
	uint32_t priority;

	/* With PriorityFlags=INCREASE_ONLY multifactor would keep our numbers
	 * of the last time, being higher than its own. */
	if (agent_owns_priorities() && array && !job->direct_set_prio)
		memset(array, 0, themis_priority_count(job) * sizeof(*array));
	priority = inner(last, job);
	if (priority && ours && !job->direct_set_prio)
		priority = _our_priority(job, priority);
	hook_count(HOOK_PRIORITY, start);
	return priority;
}

/* ---- sprio ---- */

static double _sum(const themis_factors_t *f)
{
	double sum = f->priority_age + f->priority_assoc + f->priority_fs +
		     f->priority_js + f->priority_part + f->priority_qos;

	for (uint32_t i = 0; f->priority_tres && (i < f->tres_cnt); i++)
		sum += f->priority_tres[i];
	return sum + (double) ((int64_t) f->priority_site - NICE_OFFSET) -
	       (double) ((int64_t) f->nice - NICE_OFFSET);
}

static uint32_t _priority_in(const job_record_t *job, const char *partition)
{
	const uint32_t *array = themis_priority_array(job);
	uint32_t priority = job->priority;
	ListIterator parts;
	part_record_t *part;
	int i = 0;

	if (!array || !job->part_ptr_list)
		return priority;
	parts = list_iterator_create(job->part_ptr_list);
	while ((part = list_next(parts))) {
		if (!xstrcmp(part->name, partition)) {
			priority = array[i];
			break;
		}
		i++;
	}
	list_iterator_destroy(parts);
	return priority;
}

static int _complete(void *x, void *arg)
{
	priority_factors_object_t *object = x;
	themis_factors_t *f = themis_factors(object);
	job_record_t *job = find_job_record(object->job_id);
	int64_t missing;

	(void) arg;
	if (!job || !f || job->direct_set_prio || !job->priority)
		return 0;
	if (!f->priority_site)
		f->priority_site = NICE_OFFSET;
	missing = (int64_t) _priority_in(job, object->partition) -
		  (int64_t) _sum(f);
	f->priority_site = (uint32_t) ((int64_t) f->priority_site + missing);
	return 0;
}

extern void hook_factors(List objects)
{
	slurmctld_lock_t locks = { .job = READ_LOCK, .part = READ_LOCK };

	if (!agent_owns_priorities() || !agent_governs())
		return;
	lock_slurmctld(locks);
	list_for_each(objects, _complete, NULL);
	unlock_slurmctld(locks);
}
