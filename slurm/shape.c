/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * shape.c - one job record of slurmctld as themis_job: what it asks for, what
 * it holds, how it ended, and what but GPUs keeps it waiting.
 *
 * A pending job array is one record that stands for many tasks. The first
 * MAX_TASKS of them that may run now (%N) are listed, the rest is a number.
 */
#include "internal.h"

#define MAX_TASKS 64

/* ---- state ---- */

static uint32_t _state(const job_record_t *job)
{
	if (IS_JOB_COMPLETING(job))
		return THEMIS_JOB_COMPLETING;
	if (IS_JOB_PENDING(job))
		return THEMIS_JOB_PENDING;
	if (IS_JOB_RUNNING(job))
		return THEMIS_JOB_RUNNING;
	if (IS_JOB_SUSPENDED(job))
		return THEMIS_JOB_SUSPENDED;
	return THEMIS_JOB_ENDED;
}

static uint32_t _outcome(const job_record_t *job)
{
	switch (job->job_state & JOB_STATE_BASE) {
	case JOB_PENDING:
	case JOB_RUNNING:
	case JOB_SUSPENDED:
		return THEMIS_END_NONE;
	case JOB_COMPLETE:
		return THEMIS_END_COMPLETED;
	case JOB_CANCELLED:
	case JOB_PREEMPTED:
		return THEMIS_END_CANCELLED;
	case JOB_TIMEOUT:
	case JOB_DEADLINE:
		return THEMIS_END_TIMEOUT;
	case JOB_NODE_FAIL:
	case JOB_BOOT_FAIL:
		return THEMIS_END_NODE_FAIL;
	default:
		return THEMIS_END_FAILED;
	}
}

static int _is_up(void *x, void *arg)
{
	part_record_t *part = x;

	(void) arg;
	return (part->state_up & PARTITION_SCHED) != 0;
}

static bool _partition_up(const job_record_t *job)
{
	if (job->part_ptr_list)
		return list_find_first(job->part_ptr_list, _is_up, NULL);
	return job->part_ptr && _is_up(job->part_ptr, NULL);
}

/* Reasons that only say that the scheduler has not started the job yet, or
 * that are tested here anew. */
static bool _reason_is_soft(const job_record_t *job)
{
	if (job->state_reason == THEMIS_REASON)
		return true;
	switch (job->state_reason) {
	case WAIT_NO_REASON:
	case WAIT_PRIORITY:
	case WAIT_RESOURCES:
	case WAIT_TIME:
	case WAIT_RESERVATION:
	case WAIT_NODE_NOT_AVAIL: /* the core sees nodes and their states */
	case WAIT_PART_DOWN:
	case WAIT_PART_INACTIVE:
	case WAIT_CLEANING:
	case WAIT_ARRAY_TASK_LIMIT: /* counted anew by _may_start() */
		return true;
	default:
		return false;
	}
}

static bool _reservation_closed(const job_record_t *job, time_t now)
{
	const slurmctld_resv_t *resv = job->resv_ptr;

	if (!job->resv_name || !resv || job->resv_list)
		return false;
	return (resv->start_time > now) || (resv->end_time <= now);
}

/* Why Slurm itself holds the job back. What it said of limits, licenses or a
 * burst buffer is a guess: a scheduler that has not come to the job since (a
 * deep queue, a partition given up early) leaves it standing, and only a grant
 * gets it to look again. Asking those subsystems here would write to their
 * records, which a reader must not. */
static const char *_blocked(job_record_t *job, time_t now, uint32_t *guess)
{
	if (!job->priority)
		return "held";
	if (job->details->begin_time > now)
		return "begin time not reached";
	if ((job->state_reason == WAIT_DEPENDENCY) ||
	    (!job->details->begin_time && job->details->depend_list &&
	     list_count(job->details->depend_list)))
		return "dependency";
	if (!_partition_up(job))
		return "partition not up";
	if (_reservation_closed(job, now))
		return "reservation not active";
	if (_reason_is_soft(job))
		return "";
	*guess = 1;
	return themis_reason_name(job->state_reason);
}

/* ---- what it asks for ---- */

static uint32_t _u32(uint64_t value)
{
	return MIN(value, UINT32_MAX - 1);
}

static uint32_t _tasks(const job_details_t *details)
{
	uint32_t tasks = details->num_tasks;

	if (!tasks && details->ntasks_per_node &&
	    (details->ntasks_per_node != NO_VAL16))
		tasks = details->ntasks_per_node * MAX(details->min_nodes, 1);
	return MAX(tasks, 1);
}

/* Sockets per node, which Slurm wants stated with GPUs per socket. */
static uint32_t _sockets(const job_details_t *details)
{
	const multi_core_data_t *mc = details->mc_ptr;

	if (mc && mc->sockets_per_node && (mc->sockets_per_node != NO_VAL16))
		return mc->sockets_per_node;
	return 1;
}

static void _add_request(struct view *view, const job_record_t *job,
			 const gres_job_state_t *gpus, bool first,
			 themis_job *out)
{
	const job_details_t *details = job->details;
	const char *type = gpus->type_name ?: "";

	if (first)
		out->gpu_type = arena_string(view->arena, type);
	else if (xstrcmp(out->gpu_type, type))
		out->gpu_type = ""; /* several types: any, for the auction */
	if (gpus->gres_per_node)
		out->gpus_per_node += _u32(gpus->gres_per_node);
	else if (gpus->gres_per_socket)
		out->gpus_per_node += _u32(gpus->gres_per_socket) *
				      _sockets(details);
	if (gpus->gres_per_job)
		out->gpus += _u32(gpus->gres_per_job);
	else if (gpus->gres_per_task)
		out->gpus += _u32(gpus->gres_per_task * _tasks(details));
	out->cpus_per_gpu = MAX(out->cpus_per_gpu,
				(uint32_t) (gpus->cpus_per_gres ?:
						    gpus->def_cpus_per_gres));
	out->mem_per_gpu_mib = MAX(out->mem_per_gpu_mib,
				   gpus->mem_per_gres ?:
					   gpus->def_mem_per_gres);
}

static void _fill_gpus(struct view *view, const job_record_t *job,
		       themis_job *out)
{
	ListIterator list = list_iterator_create(job->gres_list_req);
	gres_state_t *gres;
	bool first = true;

	while ((gres = list_next(list))) {
		if (xstrcmp(gres->gres_name, "gpu"))
			continue;
		_add_request(view, job, gres->gres_data, first, out);
		first = false;
	}
	list_iterator_destroy(list);
}

static void _fill_memory(const job_record_t *job, themis_job *out)
{
	uint64_t memory = job->details->pn_min_memory;

	if (out->mem_per_gpu_mib)
		return;
	if (!memory && job->part_ptr)
		memory = job->part_ptr->def_mem_per_cpu;
	if (!memory)
		memory = slurm_conf.def_mem_per_cpu;
	if ((memory == NO_VAL64) || (memory == INFINITE64))
		return;
	if (memory & MEM_PER_CPU)
		out->mem_per_cpu_mib = memory & ~MEM_PER_CPU;
	else
		out->mem_per_node_mib = memory;
}

static uint32_t _known(uint32_t value)
{
	return ((value == NO_VAL) || (value == INFINITE) ||
		(value == NO_VAL16)) ? 0 : value;
}

static uint32_t _limit_s(const job_record_t *job)
{
	uint32_t minutes = job->time_limit;

	if ((minutes == NO_VAL) && job->part_ptr) {
		minutes = job->part_ptr->default_time;
		if (minutes == NO_VAL)
			minutes = job->part_ptr->max_time;
	}
	if ((minutes == NO_VAL) || (minutes == INFINITE))
		return THEMIS_NONE;
	return _u32((uint64_t) minutes * 60);
}

static void _fill_request(struct view *view, const job_record_t *job,
			  themis_job *out)
{
	const job_details_t *details = job->details;

	out->nodes_min = MAX(_known(details->min_nodes), 1);
	out->nodes_max = _known(details->max_nodes);
	if (out->nodes_max)
		out->nodes_max = MAX(out->nodes_max, out->nodes_min);
	out->cpus_per_node = _known(details->pn_min_cpus);
	out->cpus = _known(details->min_cpus);
	out->exclusive = themis_exclusive(details) ? 1 : 0;
	out->limit_s = _limit_s(job);
	_fill_gpus(view, job, out);
	_fill_memory(job, out);
}

/* ---- what it holds ---- */

static uint32_t _gpus_on(const job_record_t *job, uint32_t host)
{
	uint64_t count = 0;
	ListIterator list;
	gres_state_t *gres;

	if (!job->gres_list_alloc)
		return 0;
	list = list_iterator_create(job->gres_list_alloc);
	while ((gres = list_next(list))) {
		gres_job_state_t *gpus = gres->gres_data;

		if (!xstrcmp(gres->gres_name, "gpu") &&
		    gpus->gres_cnt_node_alloc && (host < gpus->node_cnt))
			count += gpus->gres_cnt_node_alloc[host];
	}
	list_iterator_destroy(list);
	return _u32(count);
}

static void _fill_place(struct view *view, const job_record_t *job,
			themis_job *out)
{
	bitstr_t *all = job->job_resrcs ? job->job_resrcs->node_bitmap : NULL;
	bitstr_t *still = IS_JOB_COMPLETING(job) ? job->node_bitmap_cg :
						   job->node_bitmap;
	uint32_t *on, *gpus, host = 0;
	uint64_t *devices;
	uint8_t *slots;

	if (!all || !still || (bit_size(all) != bit_size(still)))
		return;
	on = arena_get(view->arena, bit_set_count(all) * sizeof(*on) + 1);
	gpus = arena_get(view->arena, bit_set_count(all) * sizeof(*gpus) + 1);
	slots = arena_get(view->arena, bit_set_count(all) * THEMIS_SLOTS + 1);
	devices = arena_get(view->arena, bit_set_count(all) *
						 sizeof(*devices) + 1);
	for (int i = 0; (i < bit_size(all)) && (i < view->slurm_nodes); i++) {
		if (!bit_test(all, i))
			continue;
		if (bit_test(still, i) && (view->node_index[i] != THEMIS_NONE)) {
			devices[out->n_on] = slots_fill_share(
				node_record_table_ptr[i], job, host,
				slots + out->n_on * THEMIS_SLOTS);
			on[out->n_on] = view->node_index[i];
			gpus[out->n_on++] = _gpus_on(job, host);
		}
		host++;
	}
	out->on = on;
	out->on_gpus = gpus;
	out->on_slots = slots;
	out->on_devices = devices;
}

/* ---- the whole ---- */

/* The lock is taken for this alone: Slurm's own tests of licenses and
 * reservations take it, too, and it must not be taken twice. */
static double _share(const job_record_t *job)
{
	assoc_mgr_lock_t locks = { .assoc = READ_LOCK };
	double share = 0;

	if (!job->assoc_ptr)
		return 0;
	assoc_mgr_lock(&locks);
	if (job->assoc_ptr && job->assoc_ptr->usage)
		share = job->assoc_ptr->usage->shares_norm;
	assoc_mgr_unlock(&locks);
	return ((share > 0) && (share <= 1)) ? share : 0;
}

/* Only a hint is of use to the core; other comments stay private. */
static const char *_hint(const char *comment)
{
	return (comment && strstr(comment, "themis:")) ? comment : NULL;
}

static void _fill(struct view *view, job_record_t *job, themis_job *out)
{
	struct arena *arena = view->arena;

	out->id = job->job_id;
	out->task = THEMIS_NONE;
	out->record = job->job_id;
	out->gang = job->het_job_id;
	out->uid = job->user_id;
	out->user = arena_string(arena, job->user_name);
	out->account = arena_string(arena, job->account);
	out->partition = arena_string(arena, job->partition);
	out->name = arena_string(arena, job->name);
	out->comment = arena_string(arena, _hint(job->comment));
	out->gpu_type = "";
	out->blocked = "";
	out->share = _share(job);
	out->state = _state(job);
	out->outcome = _outcome(job);
	out->submit_s = job->details->submit_time;
	out->eligible_s = job->details->begin_time;
	out->restarts = job->restart_cnt;
	/* A het job is requeued as a whole or not at all: never for a lease. */
	out->requeueable = (job->batch_flag && job->details->requeue &&
			    !job->het_job_id) ? 1 : 0;
	out->n_eligible = THEMIS_NONE;
	_fill_request(view, job, out);
	if (out->state == THEMIS_JOB_PENDING) {
		out->blocked = arena_string(arena,
					    _blocked(job, view->now,
						     &out->blocked_guess));
		eligible_fill(view, job, out);
		return;
	}
	out->start_s = job->start_time;
	if (out->state == THEMIS_JOB_ENDED)
		out->end_s = job->end_time;
	else
		_fill_place(view, job, out);
}

/* How many more tasks of an array may start now; %N is array_recs' limit. */
static uint32_t _may_start(const job_array_struct_t *array)
{
	if (!array->max_run_tasks)
		return MAX_TASKS;
	if (array->tot_run_tasks >= array->max_run_tasks)
		return 0;
	return MIN(MAX_TASKS, array->max_run_tasks - array->tot_run_tasks);
}

static void _expand(struct view *view, const job_record_t *job,
		    const themis_job *model)
{
	bitstr_t *tasks = job->array_recs->task_id_bitmap;
	uint32_t waiting = bit_set_count(tasks), n;
	uint32_t may_start = _may_start(job->array_recs);

	n = MIN(waiting, MAX(may_start, 1));
	for (int32_t task = bit_ffs(tasks), i = 0; i < (int32_t) n; task++) {
		themis_job *out;

		if (!bit_test(tasks, task))
			continue;
		out = snapshot_add_job(view);
		*out = *model;
		out->task = task;
		if (!i)
			out->more_tasks = waiting - n;
		if (!may_start && !out->blocked[0])
			out->blocked = "array task limit";
		i++;
	}
}

extern void shape_add(struct view *view, job_record_t *job)
{
	struct job_key key = job_key(job);
	themis_job model = { 0 };

	_fill(view, job, &model);
	if (key.tasks && (model.state == THEMIS_JOB_PENDING)) {
		_expand(view, job, &model);
		return;
	}
	if (!key.tasks) {
		model.id = key.id;
		model.task = key.task;
	}
	*snapshot_add_job(view) = model;
}
