/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * table.c - the directives in force, sorted for look-ups by the hooks.
 *
 * The agent's thread replaces the table as a whole; hooks read it under their
 * own Slurm locks. The rwlock is a leaf: nothing else is locked inside it.
 */
#include <stdlib.h>

#include "internal.h"

struct wait {
	const themis_wait *wait;
	uint32_t rank;
};

static struct {
	pthread_rwlock_t lock;
	themis_directives *directives;
	const themis_grant **grants; /* by id, task */
	struct wait *waits; /* by id, task */
	uint32_t n_grants, n_waits;
} table = { .lock = PTHREAD_RWLOCK_INITIALIZER };

static int _compare(uint32_t id_a, uint32_t task_a, uint32_t id_b,
		    uint32_t task_b)
{
	if (id_a != id_b)
		return (id_a < id_b) ? -1 : 1;
	return (task_a < task_b) ? -1 : (task_a > task_b);
}

static int _by_grant(const void *x, const void *y)
{
	const themis_grant *a = *(const themis_grant *const *) x;
	const themis_grant *b = *(const themis_grant *const *) y;

	return _compare(a->id, a->task, b->id, b->task);
}

static int _by_wait(const void *x, const void *y)
{
	const struct wait *a = x, *b = y;

	return _compare(a->wait->id, a->wait->task, b->wait->id,
			b->wait->task);
}

extern struct job_key job_key(const job_record_t *job)
{
	struct job_key key = { .id = job->job_id, .task = THEMIS_NONE };

	if (job->array_recs && job->array_recs->task_id_bitmap &&
	    (bit_ffs(job->array_recs->task_id_bitmap) >= 0)) {
		key.tasks = job->array_recs->task_id_bitmap;
	} else if (job->array_task_id != NO_VAL) {
		key.id = job->array_job_id;
		key.task = job->array_task_id;
	}
	return key;
}

static bool _matches(const struct job_key *key, uint32_t task)
{
	if (!key->tasks)
		return task == key->task;
	return (task < bit_size((bitstr_t *) key->tasks)) &&
	       bit_test((bitstr_t *) key->tasks, task);
}

extern void table_replace(themis_directives *directives)
{
	const themis_grant **grants = NULL, **old_grants;
	struct wait *waits = NULL, *old_waits;
	themis_directives *old;

	if (directives) {
		grants = xcalloc(directives->n_grants + 1, sizeof(*grants));
		waits = xcalloc(directives->n_waits + 1, sizeof(*waits));
		for (uint32_t i = 0; i < directives->n_grants; i++)
			grants[i] = &directives->grants[i];
		for (uint32_t i = 0; i < directives->n_waits; i++) {
			waits[i].wait = &directives->waits[i];
			waits[i].rank = i;
		}
		qsort(grants, directives->n_grants, sizeof(*grants), _by_grant);
		qsort(waits, directives->n_waits, sizeof(*waits), _by_wait);
	}

	pthread_rwlock_wrlock(&table.lock);
	old = table.directives;
	old_grants = table.grants;
	old_waits = table.waits;
	table.directives = directives;
	table.grants = grants;
	table.waits = waits;
	table.n_grants = directives ? directives->n_grants : 0;
	table.n_waits = directives ? directives->n_waits : 0;
	pthread_rwlock_unlock(&table.lock);

	xfree(old_grants);
	xfree(old_waits);
	if (old)
		library.free(old);
}

extern const themis_directives *table_directives(void)
{
	return table.directives;
}

/* First index of grants whose (id, task) is not less. */
static uint32_t _first_grant(uint32_t id, uint32_t task)
{
	uint32_t low = 0, high = table.n_grants;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (_compare(table.grants[mid]->id, table.grants[mid]->task,
			     id, task) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static uint32_t _first_wait(uint32_t id, uint32_t task)
{
	uint32_t low = 0, high = table.n_waits;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		const themis_wait *wait = table.waits[mid].wait;

		if (_compare(wait->id, wait->task, id, task) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Does slurmctld offer all the nodes that the grant names? */
static bool _offered(const themis_grant *grant, bitstr_t *nodes)
{
	for (uint32_t n = 0; nodes && !grant->anywhere && (n < grant->n_nodes);
	     n++) {
		node_record_t *node =
			find_node_record((char *) grant->nodes[n]);

		if (!node || (node->index >= bit_size(nodes)) ||
		    !bit_test(nodes, node->index))
			return false;
	}
	return true;
}

extern int64_t table_grant(const struct job_key *key, uint32_t *task,
			   bitstr_t *nodes)
{
	bool offered = false;
	int64_t order = -1;

	pthread_rwlock_rdlock(&table.lock);
	for (uint32_t i = _first_grant(key->id, key->tasks ? 0 : key->task);
	     (i < table.n_grants) && (table.grants[i]->id == key->id); i++) {
		const themis_grant *grant = table.grants[i];

		if (!_matches(key, grant->task)) {
			if (!key->tasks)
				break;
			continue;
		}
		/* Of an array's grants one that can start now goes first. */
		bool now = !key->tasks || _offered(grant, nodes);

		if ((order < 0) || (now && !offered) ||
		    ((now == offered) && (grant->order < order))) {
			offered = now;
			order = grant->order;
			if (task)
				*task = grant->task;
		}
	}
	pthread_rwlock_unlock(&table.lock);
	return order;
}

extern void table_narrow(uint32_t id, uint32_t task, bitstr_t *nodes)
{
	bitstr_t *listed = bit_alloc(bit_size(nodes));
	const themis_grant *grant = NULL;
	uint32_t i;

	pthread_rwlock_rdlock(&table.lock);
	i = _first_grant(id, task);
	if ((i < table.n_grants) && (table.grants[i]->id == id) &&
	    (table.grants[i]->task == task))
		grant = table.grants[i];
	for (uint32_t n = 0; grant && (n < grant->n_nodes); n++) {
		node_record_t *node =
			find_node_record((char *) grant->nodes[n]);

		if (node && (node->index < bit_size(listed)))
			bit_set(listed, node->index);
	}
	if (grant && grant->anywhere)
		bit_and_not(nodes, listed);
	else
		bit_and(nodes, listed);
	pthread_rwlock_unlock(&table.lock);
	FREE_NULL_BITMAP(listed);
}

extern List table_mark(uint32_t id, uint32_t task)
{
	List marks = NULL;
	uint32_t i;

	pthread_rwlock_rdlock(&table.lock);
	i = _first_grant(id, task);
	if ((i < table.n_grants) && (table.grants[i]->id == id) &&
	    (table.grants[i]->task == task) && !table.grants[i]->anywhere)
		marks = slots_mark(table.grants[i]);
	pthread_rwlock_unlock(&table.lock);
	return marks;
}

extern int64_t table_wait(const struct job_key *key, char *why, size_t why_len)
{
	int64_t rank = -1;

	pthread_rwlock_rdlock(&table.lock);
	for (uint32_t i = _first_wait(key->id, key->tasks ? 0 : key->task);
	     (i < table.n_waits) && (table.waits[i].wait->id == key->id); i++) {
		const struct wait *wait = &table.waits[i];

		if (!_matches(key, wait->wait->task)) {
			if (!key->tasks)
				break;
			continue;
		}
		if ((rank < 0) || (wait->rank < rank)) {
			rank = wait->rank;
			if (why)
				snprintf(why, why_len, "%s",
					 wait->wait->why ?: "");
		}
	}
	pthread_rwlock_unlock(&table.lock);
	return rank;
}
