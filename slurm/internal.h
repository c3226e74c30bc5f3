/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * internal.h - the parts of libthemis_slurmctld.so among themselves.
 *
 *   agent.c     the library, the thread, its clock and its counters
 *   table.c     the directives in force, as the hooks look them up
 *   hooks.c     what the plugins call, under slurmctld's locks
 *   apply.c     what the agent itself changes in jobs: priority, reason, reclaim
 *   snapshot.c  nodes and jobs copied out for the core; the arena they live in
 *   shape.c     one job as themis_job: what it asks for, why it is blocked
 *   slots.c     GPUs of one socket or NVLink island: which, and that a job gets them
 *   eligible.c  the nodes a job may use
 *   seen.c      the nodes slurmctld itself offered for a job lately
 */
#ifndef THEMIS_INTERNAL_H
#define THEMIS_INTERNAL_H

#include <stdatomic.h>

#include "agent.h"
#include "themis.h"

/* ---- agent.c ---- */

/* The functions of libthemis.so. */
struct library {
	uint32_t (*abi)(void);
	int (*open)(const themis_options *options, char *err, uint32_t len);
	int (*observe)(const themis_snapshot *snapshot);
	themis_directives *(*latest)(uint64_t seen);
	void (*free)(themis_directives *directives);
	void (*pulse)(themis_health *out);
	int (*hint)(const char *comment, char *err, uint32_t len);
	void (*close)(void);
};
extern struct library library;

/* True while the core's decisions bind GPU jobs. Else they flow as in stock:
 * no library, or the core silent for longer than fallback_after. */
extern bool agent_governs(void);
/* slurmctld is going down while we governed: nothing starts any more. */
extern bool agent_is_leaving(void);
/* True if our priority plugin is in use and the agent is running. */
extern bool agent_owns_priorities(void);
/* Starts the agent if nobody did: select/themis without priority/themis. */
extern void agent_start_late(void);

enum hook {
	HOOK_JOB_TEST,
	HOOK_PRIORITY,
	HOOK_SUBMIT,
	HOOK_READ_LOCK,
	HOOK_WRITE_LOCK,
	HOOK_COUNT
};
extern uint64_t clock_ns(void);
extern void hook_count(enum hook hook, uint64_t start_ns);
/* Copies the counters; `out` has HOOK_COUNT entries. */
extern void hook_report(themis_hook *out);

/* ---- table.c ---- */

/* Which entries of the table concern a job record. A pending job array is one
 * record for many tasks: `tasks` then is the set of those that wait. */
struct job_key {
	uint32_t id, task;
	const bitstr_t *tasks; /* NULL: just `task` */
};
extern struct job_key job_key(const job_record_t *job);

/* Puts new directives in force and takes ownership; NULL empties the table. */
extern void table_replace(themis_directives *directives);
/* The directives in force. For the agent's thread only, which replaces them. */
extern const themis_directives *table_directives(void);
/* The order of the job's (first) grant, or -1; `task` is set to the one granted.
 * Of an array's grants one within `nodes`, unless NULL, comes before others. */
extern int64_t table_grant(const struct job_key *key, uint32_t *task,
			   bitstr_t *nodes);
/* Takes nodes outside of the grant of a job or task out of `nodes`. Node lock. */
extern void table_narrow(uint32_t id, uint32_t task, bitstr_t *nodes);
/* Marks the GPUs that are not of that grant: slots.c. Node write lock. */
extern List table_mark(uint32_t id, uint32_t task);
/* The rank of a waiting job, or -1, and its sentence if `why` is not NULL. */
extern int64_t table_wait(const struct job_key *key, char *why, size_t why_len);

/* ---- hooks.c ---- */

#define SENTENCE_LEN 200

extern bool job_wants_gpus(const job_record_t *job);
/* Does the reason shown for the job come from us? */
extern bool reason_is_ours(const job_record_t *job);
/* Does it show no sentence of the core's, or nothing at all? */
extern bool reason_is_empty(const job_record_t *job);
/* Show a sentence as the job's reason, or take it away. Job write lock. */
extern void reason_set(job_record_t *job, const char *sentence);
extern void reason_clear(job_record_t *job);
/* The sentence for a waiting job as squeue shows it; SENTENCE_LEN bytes. */
extern void reason_sentence(const struct job_key *key, char *out);
/* The priority of a GPU job, whatever multifactor says. */
extern uint32_t gpu_priority(const struct job_key *key);
/* Has anybody written a CPU job's priority since we did? Job read lock. */
extern bool priority_is_stale(const job_record_t *job);
/* Drops what is remembered of jobs that are not pending any more. Only the
 * agent's thread calls it, with a job read lock: everybody else who touches
 * that memory has the write lock. */
extern void priority_memory_sweep(void);

extern bool hook_admit(job_record_t *job, bitstr_t *nodes, List *marks);
extern bool hook_plan(job_record_t *job, bitstr_t *nodes);
extern uint32_t hook_priority(themis_priority_fn inner, uint32_t last,
			      job_record_t *job);
extern void hook_factors(List objects);

/* ---- apply.c ---- */

#define THEMIS_SAYS "themis: " /* begins what we write where others may, too */

struct worklist {
	uint32_t *ids; /* job_id of records to write to */
	uint32_t count, size;
	uint32_t granted; /* pending jobs that hold a grant */
};
enum scan {
	SCAN_URGENT, /* grants that came or went, priorities overwritten */
	SCAN_ALL, /* also ranks and sentences that moved */
	SCAN_RESET /* every pending job: the core binds them no more */
};
/* Finds the pending jobs whose record is not as it should be. Job read lock. */
extern void apply_scan(struct worklist *list, enum scan scan);
/* Writes to them, taking and dropping locks. */
extern void apply_write(struct worklist *list);
/* Warns and requeues jobs whose leases ended, taking and dropping locks. */
extern void apply_reclaims(void);
/* Tells of running jobs in their AdminComment, taking and dropping locks. */
extern void apply_notes(void);

/* ---- snapshot.c ---- */

struct arena;
extern void *arena_get(struct arena *arena, size_t bytes); /* zeroed */
extern const char *arena_string(struct arena *arena, const char *s);

struct view { /* a snapshot under construction */
	themis_snapshot out;
	struct arena *arena;
	time_t now;
	themis_job *jobs;
	uint32_t n_jobs, jobs_size;
	uint32_t *node_index; /* by Slurm's index: ours, THEMIS_NONE without GPUs */
	int slurm_nodes; /* entries of node_index */
	struct eligible_cache *eligible;
};
/* Copies nodes and GPU jobs. Read locks on conf, job, node and part. */
extern struct view *snapshot_take(void);
/* Completes what may be slow (user names); holds no locks. */
extern void snapshot_finish(struct view *view);
extern void snapshot_free(struct view *view);
/* Room for one more job. */
extern themis_job *snapshot_add_job(struct view *view);

/* ---- shape.c ---- */

/* Adds a job, or the tasks of a pending array, to the view. */
extern void shape_add(struct view *view, job_record_t *job);

/* ---- slots.c ---- */

#define SLOTS_DEVICES 64 /* of a node with more no slots are told apart */

/* The node's GPUs, NULL if it has none. */
extern gres_node_state_t *node_gpus(const node_record_t *node);
extern void slots_fill_node(struct arena *arena, const gres_node_state_t *gpus,
			    themis_node *out);
/* Counts the job's GPUs on its host-th node by slot; out has THEMIS_SLOTS.
 * Returns which devices they are, the first in bit 0. */
extern uint64_t slots_fill_share(const node_record_t *node,
				 const job_record_t *job, uint32_t host,
				 uint8_t *out);
/* Does the core know how many GPUs the job gets on each node? */
extern bool slots_choose(const job_record_t *job);
/* Makes all free GPUs look taken but for those that the grant is for, until
 * slots_unmark(). NULL if it names no slots. Node write lock. */
extern List slots_mark(const themis_grant *grant);
extern void slots_unmark(List marks);

/* ---- eligible.c ---- */

extern void eligible_init(struct view *view);
extern void eligible_fini(struct view *view);
/* Fills what a pending job may and what it must run on. */
extern void eligible_fill(struct view *view, const job_record_t *job,
			  themis_job *out);

/* ---- seen.c ---- */

/* Notes that slurmctld offered these nodes to the job. Any thread. */
extern void seen_note(const job_record_t *job, bitstr_t *nodes);
/* Restricts `nodes` to what was offered in the last minutes, unless too few
 * would remain for the job. */
extern void seen_refine(const job_record_t *job, bitstr_t *nodes);

#endif
