/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * slots.c - which GPUs of a node belong together, and that a job gets those of
 * its lease.
 *
 * A slot is an island of gres.conf's Links, else the GPUs with the same Cores;
 * slurmctld has both from the slurmds (gres_node_state_t in src/common/gres.h).
 * While cons_tres looks for GPUs of a job whose grant names slots, the others
 * are marked as taken, in the bitmap and in both counts of what is taken, of
 * which it believes now one and now another (gres_sched.c and
 * gres_select_filter.c). It prefers cores beside them by itself. Marks are
 * taken off by what they are, not by what was there before: cons_tres may have
 * given the job its GPUs meanwhile.
 */
#include "internal.h"

extern gres_node_state_t *node_gpus(const node_record_t *node)
{
	gres_node_state_t *gpus = NULL;
	ListIterator list;
	gres_state_t *gres;

	if (!node->gres_list)
		return NULL;
	list = list_iterator_create(node->gres_list);
	while ((gres = list_next(list))) {
		if (!xstrcmp(gres->gres_name, "gpu")) {
			gpus = gres->gres_data;
			break;
		}
	}
	list_iterator_destroy(list);
	return (gpus && gpus->gres_cnt_avail) ? gpus : NULL;
}

/* ---- which GPUs belong together ---- */

struct slots {
	uint32_t n; /* 0: not told apart */
	uint8_t of[SLOTS_DEVICES]; /* by device */
};

static void _join(struct slots *slots, int devices, uint8_t a, uint8_t b)
{
	for (int i = 0; (a != b) && (i < devices); i++) {
		if (slots->of[i] == MAX(a, b))
			slots->of[i] = MIN(a, b);
	}
}

static bool _join_linked(const gres_node_state_t *gpus, struct slots *slots,
			 int devices)
{
	bool any = false;

	if (!gpus->links_cnt || (gpus->link_len != devices))
		return false;
	for (int i = 0; i < devices; i++) {
		for (int j = 0; gpus->links_cnt[i] && (j < devices); j++) {
			if ((i == j) || (gpus->links_cnt[i][j] <= 0))
				continue;
			any = true;
			_join(slots, devices, slots->of[i], slots->of[j]);
		}
	}
	return any;
}

static const bitstr_t *_cores(const gres_node_state_t *gpus, int device)
{
	for (int t = 0; gpus->topo_core_bitmap && gpus->topo_gres_bitmap &&
			(t < gpus->topo_cnt); t++) {
		if (gpus->topo_gres_bitmap[t] &&
		    (device < bit_size(gpus->topo_gres_bitmap[t])) &&
		    bit_test(gpus->topo_gres_bitmap[t], device))
			return gpus->topo_core_bitmap[t];
	}
	return NULL;
}

/* True if Cores are known of all GPUs that no link joins to another. */
static bool _join_beside(const gres_node_state_t *gpus, struct slots *slots,
			 int devices)
{
	bool single[SLOTS_DEVICES];

	for (int i = 0; i < devices; i++) {
		single[i] = true;
		for (int j = 0; j < devices; j++)
			single[i] &= (i == j) || (slots->of[i] != slots->of[j]);
	}
	for (int i = 0; i < devices; i++) {
		const bitstr_t *cores = _cores(gpus, i);

		if (single[i] && !cores)
			return false;
		for (int j = 0; single[i] && (j < i); j++) {
			const bitstr_t *others = _cores(gpus, j);

			if (single[j] && others &&
			    bit_equal((bitstr_t *) cores, (bitstr_t *) others))
				_join(slots, devices, slots->of[i],
				      slots->of[j]);
		}
	}
	return true;
}

static void _find_slots(const gres_node_state_t *gpus, struct slots *slots)
{
	int devices = gpus->gres_bit_alloc ? bit_size(gpus->gres_bit_alloc) : 0;
	uint8_t number[SLOTS_DEVICES];
	bool linked;

	slots->n = 0;
	if (!devices || (devices > SLOTS_DEVICES) ||
	    (gpus->gres_cnt_avail != (uint64_t) devices))
		return;
	for (int i = 0; i < devices; i++)
		slots->of[i] = i;
	linked = _join_linked(gpus, slots, devices);
	if (!_join_beside(gpus, slots, devices) && !linked)
		return;
	for (int i = 0; i < devices; i++) { /* the lowest device names a slot */
		if (slots->of[i] == i) {
			if (slots->n == THEMIS_SLOTS) {
				slots->n = 0;
				return;
			}
			number[i] = slots->n++;
		}
		slots->of[i] = number[slots->of[i]];
	}
}

extern void slots_fill_node(struct arena *arena, const gres_node_state_t *gpus,
			    themis_node *out)
{
	struct slots slots;
	themis_gpus *list;

	_find_slots(gpus, &slots);
	if (!slots.n)
		return;
	list = arena_get(arena, slots.n * sizeof(*list));
	for (int i = 0; i < bit_size(gpus->gres_bit_alloc); i++) {
		list[slots.of[i]].type = "";
		list[slots.of[i]].total++;
		list[slots.of[i]].used += bit_test(gpus->gres_bit_alloc, i) ?
						  1 : 0;
	}
	out->slots = list;
	out->n_slots = slots.n;
}

extern uint64_t slots_fill_share(const node_record_t *node,
				 const job_record_t *job, uint32_t host,
				 uint8_t *out)
{
	const gres_node_state_t *gpus = node_gpus(node);
	uint64_t held_devices = 0;
	struct slots slots;
	ListIterator list;
	gres_state_t *gres;

	if (!gpus || !job->gres_list_alloc)
		return 0;
	_find_slots(gpus, &slots);
	list = list_iterator_create(job->gres_list_alloc);
	while ((gres = list_next(list))) {
		gres_job_state_t *held = gres->gres_data;
		bitstr_t *devices;

		if (xstrcmp(gres->gres_name, "gpu") || !held->gres_bit_alloc ||
		    (host >= held->node_cnt) ||
		    !(devices = held->gres_bit_alloc[host]))
			continue;
		for (int i = 0; (i < bit_size(devices)) &&
				(i < SLOTS_DEVICES); i++) {
			if (!bit_test(devices, i))
				continue;
			held_devices |= 1ull << i;
			if (slots.n && (i < bit_size(gpus->gres_bit_alloc)))
				out[slots.of[i]]++;
		}
	}
	list_iterator_destroy(list);
	return held_devices;
}

/* ---- that a job gets those of its lease ---- */

struct mark { /* GPUs of a node that look as if they were taken */
	int node;
	bitstr_t *devices;
};

static void _count(gres_node_state_t *gpus, const bitstr_t *devices, int sign)
{
	int n = bit_set_count((bitstr_t *) devices);

	gpus->gres_cnt_alloc += sign * n;
	for (int t = 0; gpus->topo_gres_bitmap && gpus->topo_gres_cnt_alloc &&
			(t < gpus->topo_cnt); t++) {
		if (gpus->topo_gres_bitmap[t] &&
		    (bit_size(gpus->topo_gres_bitmap[t]) ==
		     bit_size((bitstr_t *) devices)))
			gpus->topo_gres_cnt_alloc[t] += sign *
				bit_overlap(gpus->topo_gres_bitmap[t],
					    (bitstr_t *) devices);
	}
}

/* The free GPUs of the node but for so many of each slot; NULL if these are not
 * there: then cons_tres chooses as it likes. */
static bitstr_t *_others(const gres_node_state_t *gpus, const uint8_t *wanted)
{
	uint8_t left[THEMIS_SLOTS];
	struct slots slots;
	bitstr_t *others;
	uint32_t missing = 0;

	_find_slots(gpus, &slots);
	if (!slots.n)
		return NULL;
	memcpy(left, wanted, sizeof(left));
	others = bit_copy(gpus->gres_bit_alloc);
	bit_not(others);
	for (int i = 0; i < bit_size(others); i++) {
		if (bit_test(others, i) && left[slots.of[i]]) {
			left[slots.of[i]]--;
			bit_clear(others, i);
		}
	}
	for (int k = 0; k < THEMIS_SLOTS; k++)
		missing += left[k];
	if (missing)
		FREE_NULL_BITMAP(others);
	return others;
}

static bool _any(const uint8_t *wanted)
{
	for (int k = 0; k < THEMIS_SLOTS; k++) {
		if (wanted[k])
			return true;
	}
	return false;
}

/* How many GPUs a job gets that asks by socket or task is known to cons_tres
 * alone: it may be more than its lease is for. */
static int _counts_itself(void *x, void *arg)
{
	gres_state_t *gres = x;
	const gres_job_state_t *gpus = gres->gres_data;

	(void) arg;
	return !xstrcmp(gres->gres_name, "gpu") &&
	       (gpus->gres_per_socket || gpus->gres_per_task ||
		(gpus->ntasks_per_gres && (gpus->ntasks_per_gres != NO_VAL16)));
}

extern bool slots_choose(const job_record_t *job)
{
	return job->gres_list_req &&
	       !list_find_first(job->gres_list_req, _counts_itself, NULL);
}

extern List slots_mark(const themis_grant *grant)
{
	List marks = NULL;

	for (uint32_t n = 0; grant->slots && (n < grant->n_nodes); n++) {
		const uint8_t *wanted = grant->slots + n * THEMIS_SLOTS;
		node_record_t *node = find_node_record((char *) grant->nodes[n]);
		gres_node_state_t *gpus = node ? node_gpus(node) : NULL;
		bitstr_t *others;
		struct mark *mark;

		if (!gpus || !_any(wanted) || !(others = _others(gpus, wanted)))
			continue;
		bit_or(gpus->gres_bit_alloc, others);
		_count(gpus, others, +1);
		mark = xmalloc(sizeof(*mark));
		mark->node = node->index;
		mark->devices = others;
		if (!marks)
			marks = list_create(NULL);
		list_append(marks, mark);
	}
	return marks;
}

extern void slots_unmark(List marks)
{
	struct mark *mark;

	while (marks && (mark = list_pop(marks))) {
		gres_node_state_t *gpus =
			node_gpus(node_record_table_ptr[mark->node]);

		if (gpus) {
			bit_and_not(gpus->gres_bit_alloc, mark->devices);
			_count(gpus, mark->devices, -1);
		}
		FREE_NULL_BITMAP(mark->devices);
		xfree(mark);
	}
	FREE_NULL_LIST(marks);
}
