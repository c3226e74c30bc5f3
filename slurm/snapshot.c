/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * snapshot.c - nodes and GPU jobs copied out of slurmctld for the core.
 *
 * Everything a snapshot points to lies in one arena, freed as a whole. Only
 * nodes with GPUs are listed. What nodes have in use is added up from the jobs
 * themselves: the select plugin's own sums are brought up to date only when
 * somebody asks for them, under a write lock.
 */
#include <stdlib.h>

#include "internal.h"

#define BLOCK (256 * 1024)
#define NAME_CACHE 1024
#define NAME_LIFE_S 3600

/* ---- arena ---- */

struct block {
	struct block *next;
	size_t size, used;
	max_align_t bytes[];
};

struct arena {
	struct block *blocks;
};

extern void *arena_get(struct arena *arena, size_t bytes)
{
	struct block *block = arena->blocks;
	void *out;

	bytes = (bytes + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
	if (!block || (block->size - block->used < bytes)) {
		size_t size = MAX(bytes, (size_t) BLOCK);

		block = xmalloc(sizeof(*block) + size);
		block->size = size;
		block->next = arena->blocks;
		arena->blocks = block;
	}
	out = (char *) block->bytes + block->used;
	block->used += bytes;
	return out;
}

extern const char *arena_string(struct arena *arena, const char *s)
{
	size_t bytes;
	char *copy;

	if (!s || !s[0])
		return "";
	bytes = strlen(s) + 1;
	copy = arena_get(arena, bytes);
	memcpy(copy, s, bytes);
	return copy;
}

/* ---- nodes ---- */

static uint32_t _node_state(const node_record_t *node)
{
	if (IS_NODE_DOWN(node) || IS_NODE_FUTURE(node) ||
	    IS_NODE_UNKNOWN(node) ||
	    (IS_NODE_NO_RESPOND(node) && !IS_NODE_POWERING_UP(node)) ||
	    IS_NODE_POWERING_DOWN(node))
		return THEMIS_NODE_DOWN;
	/* A node in a maintenance reservation takes that reservation's jobs. */
	if (IS_NODE_DRAIN(node) || IS_NODE_FAIL(node) ||
	    IS_NODE_REBOOT_REQUESTED(node) || IS_NODE_REBOOT_ISSUED(node) ||
	    IS_NODE_INVALID_REG(node))
		return THEMIS_NODE_DRAIN;
	return THEMIS_NODE_UP;
}

/* GPUs of one type in use. The count by type misses jobs that named none;
 * where devices are known, the bitmap of devices does not. */
static uint32_t _type_used(const gres_node_state_t *gpus, int type)
{
	uint32_t used = 0;
	bool by_device = false;

	for (int i = 0; gpus->gres_bit_alloc && (i < gpus->topo_cnt); i++) {
		if (!gpus->topo_gres_bitmap || !gpus->topo_gres_bitmap[i] ||
		    (gpus->topo_type_id[i] != gpus->type_id[type]) ||
		    (bit_size(gpus->topo_gres_bitmap[i]) !=
		     bit_size(gpus->gres_bit_alloc)))
			continue;
		by_device = true;
		used += bit_overlap(gpus->topo_gres_bitmap[i],
				    gpus->gres_bit_alloc);
	}
	return by_device ? used : gpus->type_cnt_alloc[type];
}

/* Lists the GPUs by type; those of no type come last, as "". Uses that no type
 * accounts for are charged to the untyped and then to the last types. */
static void _fill_gpus(struct arena *arena, const gres_node_state_t *gpus,
		       themis_node *out)
{
	uint32_t left = gpus->gres_cnt_avail, used = gpus->gres_cnt_alloc;
	themis_gpus *list = arena_get(arena, (gpus->type_cnt + 1) *
						     sizeof(*list));
	uint32_t n = 0;

	for (int i = 0; i < gpus->type_cnt; i++, n++) {
		list[n].type = arena_string(arena, gpus->type_name[i]);
		list[n].total = MIN(gpus->type_cnt_avail[i], left);
		list[n].used = MIN(MIN(_type_used(gpus, i), list[n].total),
				   used);
		left -= list[n].total;
		used -= list[n].used;
	}
	if (left || !n) {
		list[n].type = "";
		list[n++].total = left;
	}
	for (uint32_t i = n; used && i--;) {
		uint32_t more = MIN(used, list[i].total - list[i].used);

		list[i].used += more;
		used -= more;
	}
	out->gpus = list;
	out->n_gpus = n;
}

static void _fill_node(struct view *view, const node_record_t *node,
		       themis_node *out)
{
	out->name = arena_string(view->arena, node->name);
	out->rack = arena_string(view->arena, themis_leaf_switch(node->index));
	out->state = _node_state(node);
	if (out->state != THEMIS_NODE_UP)
		out->why = arena_string(view->arena, node->reason);
	out->cpus = node->cpus_efctv ?: node->cpus;
	if (slurm_conf.select_type_param & CR_MEMORY)
		out->mem_mib = (node->real_memory > node->mem_spec_limit) ?
				       node->real_memory - node->mem_spec_limit :
				       0;
	out->exclusive = node->no_share_job_cnt != 0;
	if (!xstrncmp(node->extra, THEMIS_SAYS, strlen(THEMIS_SAYS)))
		out->extra = arena_string(view->arena, node->extra);
	_fill_gpus(view->arena, node_gpus(node), out);
	slots_fill_node(view->arena, node_gpus(node), out);
}

static themis_node *_add_nodes(struct view *view)
{
	themis_node *nodes = arena_get(view->arena, (node_record_count + 1) *
							    sizeof(*nodes));
	node_record_t *node;

	view->slurm_nodes = node_record_count;
	view->node_index = arena_get(view->arena, (node_record_count + 1) *
							  sizeof(uint32_t));
	for (int i = 0; i < node_record_count; i++)
		view->node_index[i] = THEMIS_NONE;
	for (int i = 0; (node = next_node(&i)); i++) {
		if (!node_gpus(node) || (i >= view->slurm_nodes))
			continue;
		_fill_node(view, node, &nodes[view->out.n_nodes]);
		view->node_index[i] = view->out.n_nodes++;
	}
	view->out.nodes = nodes;
	return nodes;
}

/* Adds what a job holds to the sums of its nodes. */
static void _charge(struct view *view, const job_record_t *job,
		    themis_node *nodes)
{
	const job_resources_t *held = job->job_resrcs;
	int first, last, host = 0;

	if (!held || !held->node_bitmap || !held->cpus || !job->node_bitmap)
		return;
	first = bit_ffs(held->node_bitmap);
	last = bit_fls(held->node_bitmap);
	for (int i = first; (first >= 0) && (i <= last); i++) {
		uint32_t index;

		if (!bit_test(held->node_bitmap, i))
			continue;
		if ((i < view->slurm_nodes) &&
		    ((index = view->node_index[i]) != THEMIS_NONE) &&
		    bit_test(job->node_bitmap, i)) {
			nodes[index].cpus_used += held->cpus[host];
			if (held->memory_allocated && nodes[index].mem_mib)
				nodes[index].mem_used_mib +=
					held->memory_allocated[host];
		}
		host++;
	}
}

/* ---- jobs ---- */

extern themis_job *snapshot_add_job(struct view *view)
{
	if (view->n_jobs == view->jobs_size) {
		view->jobs_size = view->jobs_size ? 2 * view->jobs_size : 256;
		xrecalloc(view->jobs, view->jobs_size, sizeof(*view->jobs));
	}
	return &view->jobs[view->n_jobs++];
}

static void _add_jobs(struct view *view, themis_node *nodes)
{
	ListIterator jobs = list_iterator_create(job_list);
	job_record_t *job;

	while ((job = list_next(jobs))) {
		if (IS_JOB_RUNNING(job) || IS_JOB_SUSPENDED(job))
			_charge(view, job, nodes);
		if (job->details && !IS_JOB_REVOKED(job) && job_wants_gpus(job))
			shape_add(view, job);
	}
	list_iterator_destroy(jobs);
}

extern struct view *snapshot_take(void)
{
	struct view *view = xmalloc(sizeof(*view));

	view->arena = xmalloc(sizeof(*view->arena));
	view->now = time(NULL);
	view->out.now_s = view->now;
	view->out.private_jobs =
		(slurm_conf.private_data & PRIVATE_DATA_JOBS) ? 1 : 0;
	eligible_init(view);
	_add_jobs(view, _add_nodes(view));
	eligible_fini(view);
	return view;
}

/* ---- after the locks ---- */

/* Names of users whose records lack one. The agent's thread only. */
static const char *_user_name(struct arena *arena, uint32_t uid, time_t now)
{
	static struct { uint32_t uid; time_t at; char *name; } cache[NAME_CACHE];
	int slot = uid % NAME_CACHE;

	if (!cache[slot].name || (cache[slot].uid != uid) ||
	    (now - cache[slot].at > NAME_LIFE_S)) {
		xfree(cache[slot].name);
		cache[slot].name = uid_to_string(uid);
		cache[slot].uid = uid;
		cache[slot].at = now;
	}
	return arena_string(arena, cache[slot].name);
}

extern void snapshot_finish(struct view *view)
{
	themis_hook *hooks = arena_get(view->arena, HOOK_COUNT * sizeof(*hooks));

	for (uint32_t i = 0; i < view->n_jobs; i++) {
		themis_job *job = &view->jobs[i];

		if (!job->user[0])
			job->user = _user_name(view->arena, job->uid, view->now);
	}
	hook_report(hooks);
	view->out.hooks = hooks;
	view->out.n_hooks = HOOK_COUNT;
	view->out.jobs = view->jobs;
	view->out.n_jobs = view->n_jobs;
}

extern void snapshot_free(struct view *view)
{
	while (view->arena->blocks) {
		struct block *next = view->arena->blocks->next;

		xfree(view->arena->blocks);
		view->arena->blocks = next;
	}
	xfree(view->arena);
	xfree(view->jobs);
	xfree(view);
}
