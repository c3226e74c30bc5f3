/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * seen.c - the nodes slurmctld offered for a job in the last minutes.
 *
 * The bitmap select_p_job_test() is called with is Slurm's own answer to where
 * a job may run: partition, features, reservations, nodes owned by others,
 * nodes kept for jobs before it. One call sees only a part (nodes come in
 * groups of equal weight, and nodes that are down are missing), so calls are
 * united over a window of time, and the window before it is kept.
 */
#include "internal.h"

#define BUCKETS 4096
#define WINDOW_S 150

struct seen {
	struct seen *next;
	uint32_t job_id; /* the array's for tasks: they differ in nothing here */
	time_t began; /* of the current window */
	bitstr_t *current, *previous;
};

static struct seen *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static time_t last_sweep;

static uint32_t _id(const job_record_t *job)
{
	return job->array_job_id ?: job->job_id;
}

static void _free(struct seen *seen)
{
	FREE_NULL_BITMAP(seen->current);
	FREE_NULL_BITMAP(seen->previous);
	xfree(seen);
}

static bool _expired(const struct seen *seen, time_t now)
{
	return now - seen->began > 2 * WINDOW_S;
}

static void _sweep(time_t now)
{
	if (now - last_sweep < WINDOW_S)
		return;
	last_sweep = now;
	for (int i = 0; i < BUCKETS; i++) {
		struct seen **link = &buckets[i];

		while (*link) {
			struct seen *seen = *link;

			if (!_expired(seen, now)) {
				link = &seen->next;
				continue;
			}
			*link = seen->next;
			_free(seen);
		}
	}
}

static struct seen *_find(uint32_t job_id)
{
	struct seen *seen = buckets[job_id % BUCKETS];

	while (seen && (seen->job_id != job_id))
		seen = seen->next;
	return seen;
}

extern void seen_note(const job_record_t *job, bitstr_t *nodes)
{
	uint32_t id = _id(job);
	time_t now = time(NULL);
	struct seen *seen;

	slurm_mutex_lock(&lock);
	_sweep(now);
	if (!(seen = _find(id))) {
		seen = xmalloc(sizeof(*seen));
		seen->job_id = id;
		seen->began = now;
		seen->next = buckets[id % BUCKETS];
		buckets[id % BUCKETS] = seen;
	}
	if (seen->current &&
	    ((now - seen->began > WINDOW_S) ||
	     (bit_size(seen->current) != bit_size((bitstr_t *) nodes)))) {
		FREE_NULL_BITMAP(seen->previous);
		seen->previous = seen->current;
		seen->current = NULL;
		seen->began = now;
	}
	if (!seen->current)
		seen->current = bit_copy((bitstr_t *) nodes);
	else
		bit_or(seen->current, (bitstr_t *) nodes);
	slurm_mutex_unlock(&lock);
}

extern void seen_refine(const job_record_t *job, bitstr_t *nodes)
{
	bitstr_t *offered = NULL;
	struct seen *seen;
	int32_t least = MAX(1, (int32_t) job->details->min_nodes);

	slurm_mutex_lock(&lock);
	seen = _find(_id(job));
	if (seen && !_expired(seen, time(NULL)) &&
	    (bit_size(seen->current) == bit_size(nodes))) {
		offered = bit_copy(seen->current);
		if (seen->previous &&
		    (bit_size(seen->previous) == bit_size(nodes)))
			bit_or(offered, seen->previous);
	}
	slurm_mutex_unlock(&lock);
	if (offered && (bit_overlap(offered, nodes) >= least))
		bit_and(nodes, offered);
	FREE_NULL_BITMAP(offered);
}
