/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * eligible.c - the nodes a pending job may use, as far as it can be told
 * without changing anything: partitions, excluded and required nodes, sizes,
 * simple feature lists, reservations; then what slurmctld itself offered.
 *
 * Most jobs of a queue share a few answers, so answers are kept for the time
 * of one snapshot, by all that goes into them. Read locks on all of slurmctld.
 */
#include "internal.h"

#define BUCKETS 1024

struct answer { /* by signature */
	struct answer *next;
	const char *signature;
	bitstr_t *nodes;
};
struct set { /* by content */
	struct set *next;
	bitstr_t *nodes;
	uint32_t *list, count;
};

struct eligible_cache {
	struct answer *answers[BUCKETS];
	struct set *sets[BUCKETS];
};

extern void eligible_init(struct view *view)
{
	view->eligible = xmalloc(sizeof(*view->eligible));
}

extern void eligible_fini(struct view *view)
{
	for (int i = 0; i < BUCKETS; i++) {
		for (struct answer *a = view->eligible->answers[i]; a;
		     a = a->next)
			FREE_NULL_BITMAP(a->nodes);
		for (struct set *s = view->eligible->sets[i]; s; s = s->next)
			FREE_NULL_BITMAP(s->nodes);
	}
	xfree(view->eligible);
}

static uint32_t _hash(const char *s)
{
	uint32_t hash = 2166136261u;

	for (; *s; s++)
		hash = (hash ^ (uint8_t) *s) * 16777619u;
	return hash % BUCKETS;
}

static uint32_t _hash_bits(bitstr_t *nodes)
{
	uint32_t hash = bit_set_count(nodes);

	hash = hash * 31 + bit_ffs(nodes);
	hash = hash * 31 + bit_fls(nodes);
	return hash % BUCKETS;
}

static void _or_partition(part_record_t *part, bitstr_t *nodes)
{
	if (part && part->node_bitmap &&
	    (bit_size(part->node_bitmap) == bit_size(nodes)))
		bit_or(nodes, part->node_bitmap);
}

static void _partitions(const job_record_t *job, bitstr_t *nodes)
{
	ListIterator parts;
	part_record_t *part;

	if (!job->part_ptr_list) {
		_or_partition(job->part_ptr, nodes);
		return;
	}
	parts = list_iterator_create(job->part_ptr_list);
	while ((part = list_next(parts)))
		_or_partition(part, nodes);
	list_iterator_destroy(parts);
}

static int _has_name(void *x, void *key)
{
	return !xstrcmp(((node_feature_t *) x)->name, key);
}

/* Lists of features that must all be there. Alternatives, counts and brackets
 * are left to what slurmctld offers. */
static void _features(const job_details_t *details, bitstr_t *nodes)
{
	bitstr_t *with = bit_copy(nodes);
	job_feature_t *feature;
	ListIterator list;

	list = list_iterator_create(details->feature_list);
	while ((feature = list_next(list))) {
		node_feature_t *known;

		if (feature->count || feature->paren ||
		    ((feature->op_code != FEATURE_OP_AND) &&
		     (feature->op_code != FEATURE_OP_END)))
			break;
		known = list_find_first(avail_feature_list, _has_name,
					feature->name);
		if (known && known->node_bitmap)
			bit_and(with, known->node_bitmap);
	}
	if (!feature)
		bit_and(nodes, with);
	list_iterator_destroy(list);
	FREE_NULL_BITMAP(with);
}

static void _reservations(const job_record_t *job, time_t now, bitstr_t *nodes)
{
	ListIterator list;
	slurmctld_resv_t *resv;

	if (job->resv_list)
		return;
	if (job->resv_ptr && job->resv_ptr->node_bitmap &&
	    !(job->resv_ptr->flags & RESERVE_FLAG_FLEX))
		bit_and(nodes, job->resv_ptr->node_bitmap);
	if (!resv_list || !list_count(resv_list))
		return;
	list = list_iterator_create(resv_list);
	while ((resv = list_next(list))) {
		if ((resv != job->resv_ptr) && resv->node_bitmap &&
		    (resv->ctld_flags & RESV_CTLD_FULL_NODE) &&
		    !(resv->flags & RESERVE_FLAG_MAGNETIC) &&
		    (resv->start_time <= now) && (resv->end_time > now))
			bit_and_not(nodes, resv->node_bitmap);
	}
	list_iterator_destroy(list);
}

/* As backfill does it, but for features: looking those up writes to the job. */
static void _sizes(const job_record_t *job, bitstr_t *nodes)
{
	job_details_t details = *job->details;
	job_record_t probe = { .magic = job->magic, .job_id = job->job_id,
			       .user_id = job->user_id, .details = &details };

	details.features = details.features_use = NULL;
	details.feature_list = details.feature_list_use = NULL;
	job_req_node_filter(&probe, nodes, true);
}

static bitstr_t *_compute(const job_record_t *job, time_t now)
{
	const job_details_t *details = job->details;
	bitstr_t *nodes = bit_alloc(node_record_count);

	_partitions(job, nodes);
	if (details->exc_node_bitmap)
		bit_and_not(nodes, details->exc_node_bitmap);
	if (details->feature_list)
		_features(details, nodes);
	_reservations(job, now, nodes);
	_sizes(job, nodes);
	return nodes;
}

/* All that _compute() looks at, in one line. */
static char *_signature(const job_record_t *job)
{
	const job_details_t *d = job->details;
	const multi_core_data_t *mc = d->mc_ptr;

	return xstrdup_printf("%s|%s|%s|%s|%p|%p|%u|%u|%"PRIu64"|%u|%u|%u|%u",
			      job->partition ?: "", d->exc_nodes ?: "",
			      d->req_nodes ?: "", d->features ?: "",
			      (void *) job->resv_ptr, (void *) job->resv_list,
			      d->min_nodes, d->pn_min_cpus, d->pn_min_memory,
			      d->pn_min_tmp_disk,
			      mc ? mc->sockets_per_node : 0,
			      mc ? mc->cores_per_socket : 0,
			      mc ? mc->threads_per_core : 0);
}

static bitstr_t *_answer(struct view *view, const job_record_t *job)
{
	char *signature = _signature(job);
	struct answer **bucket = &view->eligible->answers[_hash(signature)];
	struct answer *answer = *bucket;

	while (answer && strcmp(answer->signature, signature))
		answer = answer->next;
	if (!answer) {
		answer = arena_get(view->arena, sizeof(*answer));
		answer->signature = arena_string(view->arena, signature);
		answer->nodes = _compute(job, view->now);
		answer->next = *bucket;
		*bucket = answer;
	}
	xfree(signature);
	return answer->nodes;
}

/* The set with this content; takes ownership of the bitmap. */
static struct set *_set(struct view *view, bitstr_t *nodes)
{
	struct set **bucket = &view->eligible->sets[_hash_bits(nodes)];
	struct set *set = *bucket;

	while (set && !bit_equal(set->nodes, nodes))
		set = set->next;
	if (set) {
		FREE_NULL_BITMAP(nodes);
		return set;
	}
	set = arena_get(view->arena, sizeof(*set));
	set->nodes = nodes;
	set->next = *bucket;
	*bucket = set;
	set->list = arena_get(view->arena, (bit_set_count(nodes) + 1) *
						   sizeof(uint32_t));
	for (int i = 0; i < view->slurm_nodes; i++) {
		if ((view->node_index[i] != THEMIS_NONE) && bit_test(nodes, i))
			set->list[set->count++] = view->node_index[i];
	}
	return set;
}

extern void eligible_fill(struct view *view, const job_record_t *job,
			  themis_job *out)
{
	bitstr_t *nodes = bit_copy(_answer(view, job));
	struct set *set;

	seen_refine(job, nodes);
	set = _set(view, nodes);
	out->eligible = set->list;
	out->n_eligible = set->count;
	if (set->count == view->out.n_nodes)
		out->n_eligible = THEMIS_NONE;
	if (job->details->req_node_bitmap) {
		set = _set(view, bit_copy(job->details->req_node_bitmap));
		out->required = set->list;
		out->n_required = set->count;
	}
}
