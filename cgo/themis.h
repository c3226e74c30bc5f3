/* SPDX-License-Identifier: Apache-2.0
 *
 * themis.h - the C ABI of libthemis.so, the shim between a host daemon
 * (slurmctld, ResourceManager) and the Themis core.
 *
 * Rules that hold for every function:
 *   threads    any thread may call; none may be a forked child of the process
 *              that loaded the library (a Go runtime does not survive fork).
 *   deadline   no function waits for the core. Each returns within the time it
 *              takes to copy its arguments; themis_close() waits up to 2 s.
 *   ownership  arguments stay the caller's and are copied before the call
 *              returns. What is returned is released with the named function.
 *   failure    a panic in the library never reaches the caller: the function
 *              returns its failure value and the library logs one line.
 *
 * The host checks themis_abi() == THEMIS_ABI before it calls anything else.
 * Strings are UTF-8 or arbitrary bytes ended by NUL; NULL reads as "".
 * Times are seconds since the epoch, 0 meaning unknown, unless named _ms.
 */
#ifndef THEMIS_H
#define THEMIS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cgo cannot express const; the library itself is built without it. */
#ifndef THEMIS_CONST
#define THEMIS_CONST const
#endif

#define THEMIS_ABI 3
#define THEMIS_SLOTS 8 /* of a node that are told apart */
#define THEMIS_NONE UINT32_MAX /* no such number: not an array task, no limit, ... */

/* ---- options -------------------------------------------------------- */

typedef struct themis_options {
	const char *host;       /* "slurm" or "yarn" */
	const char *cluster;    /* cluster name, as the host knows it */
	const char *config;     /* themis.toml; a missing file means all defaults */
	const char *state_dir;  /* folder for the ledger and socket; made if missing */
	const char *binary;     /* the themis executable, to launch the core */
	const char *socket;     /* where an attached core would listen; if nobody
				 * listens there when the shim starts, it launches one */
	uint32_t owner_uid;     /* the host daemon's uid; it and root may observe */
	/* Receives log lines. level: 0 error, 1 info, 2 debug. Called from
	 * threads of the library, must not block. NULL: lines are dropped. */
	void (*log)(int level, const char *line);
} themis_options;

/* ---- snapshot: what the host sees ----------------------------------- */

typedef struct themis_gpus {
	const char *type;       /* "" if untyped */
	uint32_t total, used;
} themis_gpus;

enum { THEMIS_NODE_UP = 0, THEMIS_NODE_DRAIN = 1, THEMIS_NODE_DOWN = 2 };

typedef struct themis_node {
	const char *name;
	const char *rack;       /* leaf switch, "" if unknown */
	uint32_t state;         /* THEMIS_NODE_*; DRAIN runs on but takes nothing new */
	const char *why;        /* it is not up; "" if nothing is said */
	uint32_t cpus, cpus_used;
	uint64_t mem_mib, mem_used_mib; /* mem_mib 0: memory is not a resource here */
	const themis_gpus *gpus;
	uint32_t n_gpus;        /* entries in gpus, one per type */
	const themis_gpus *slots; /* the same GPUs by slot (one socket or NVLink
				 * island), without types */
	uint32_t n_slots;       /* at most THEMIS_SLOTS; 0: not told apart */
	uint32_t exclusive;     /* 1: a job holds the whole node */
	const char *extra;      /* what its health check says of its GPUs */
} themis_node;

enum {
	THEMIS_JOB_PENDING = 0,
	THEMIS_JOB_RUNNING = 1,
	THEMIS_JOB_SUSPENDED = 2,
	THEMIS_JOB_COMPLETING = 3, /* over, its GPUs not yet confirmed free */
	THEMIS_JOB_ENDED = 4
};
enum { /* how an ended job ended */
	THEMIS_END_NONE = 0, THEMIS_END_COMPLETED = 1, THEMIS_END_FAILED = 2,
	THEMIS_END_CANCELLED = 3, THEMIS_END_TIMEOUT = 4, THEMIS_END_NODE_FAIL = 5
};

typedef struct themis_job {
	uint32_t id;            /* job id; for an array task the array's job id */
	uint32_t task;          /* array task id, THEMIS_NONE if not an array task */
	uint32_t record;        /* the host's own number of this record (Slurm: job_id) */
	uint32_t gang;          /* jobs of one non-zero gang start together or not at
				 * all (Slurm: het_job_id) */
	uint32_t uid;
	const char *user, *account, *partition, *name, *comment;
	double share;           /* weight of the user's or account's share, 0: default 1 */
	uint32_t state;         /* THEMIS_JOB_* */
	uint32_t outcome;       /* THEMIS_END_* */
	const char *blocked;    /* why the host itself holds it (held, dependency,
				 * begin time, limit, ...); "" if only GPUs are missing */
	uint32_t blocked_guess; /* 1: `blocked` is what the host said when it last
				 * looked at the job, which may be long ago */
	int64_t submit_s, eligible_s, start_s, end_s;
	uint32_t limit_s;       /* time limit; THEMIS_NONE if unlimited */
	uint32_t restarts;      /* how often it was requeued */
	uint32_t requeueable;   /* 1: the host may requeue it */
	/* shape: per node or in all. Zero means "not stated". */
	uint32_t nodes_min, nodes_max; /* nodes_max 0: as many as it needs */
	uint32_t gpus_per_node; /* on each of its nodes */
	uint32_t gpus;          /* in all, spread over its nodes as the host likes;
				 * used when gpus_per_node is 0 */
	const char *gpu_type;   /* "" any */
	uint32_t cpus_per_node; /* least CPUs on each node */
	uint32_t cpus;          /* least CPUs in all */
	uint32_t cpus_per_gpu;
	uint64_t mem_per_node_mib, mem_per_cpu_mib, mem_per_gpu_mib;
	uint32_t exclusive;     /* 1: whole nodes */
	uint32_t more_tasks;    /* waiting tasks of the same array not listed on their own */
	/* nodes it may run on, as indices into the snapshot's nodes */
	const uint32_t *eligible;
	uint32_t n_eligible;    /* THEMIS_NONE: any node */
	/* nodes it must have (sbatch -w); more may join them */
	const uint32_t *required;
	uint32_t n_required;
	/* where it runs: node index and GPUs held there */
	const uint32_t *on, *on_gpus;
	uint32_t n_on;
	const uint8_t *on_slots; /* THEMIS_SLOTS for each of on: its GPUs by slot;
				 * zeros, or NULL: not known */
	const uint64_t *on_devices; /* the same by device, the first in bit 0; 0, or
				 * NULL: not known */
} themis_job;

typedef struct themis_hook { /* time the host's threads spent in one of our hooks */
	const char *name;
	uint64_t calls, total_ns, max_ns;
} themis_hook;

typedef struct themis_snapshot {
	int64_t now_s;
	uint32_t private_jobs;  /* 1: users may see only their own jobs */
	const themis_node *nodes;
	uint32_t n_nodes;
	const themis_job *jobs; /* only jobs that use or ask for GPUs */
	uint32_t n_jobs;
	const themis_hook *hooks;
	uint32_t n_hooks;
} themis_snapshot;

/* ---- directives: what the core decided ------------------------------- */

typedef struct themis_grant { /* a lease of a job that has not started yet */
	uint64_t lease;
	uint32_t id, task;
	uint32_t order;         /* 0 starts first */
	uint32_t anywhere;      /* 1: any free eligible node will do except `nodes`,
				 * which are reserved for others */
	const char *const *nodes; /* may start on these and no others */
	uint32_t n_nodes;
	const uint8_t *slots;   /* THEMIS_SLOTS for each of nodes: its GPUs by slot;
				 * zeros, or NULL: any */
} themis_grant;

enum { THEMIS_RECLAIM_WARN = 0, THEMIS_RECLAIM_REQUEUE = 1 };

typedef struct themis_reclaim { /* a lease that ended under a running job */
	uint64_t lease;
	uint32_t id, task;
	uint32_t phase;         /* WARN: send its warning signal, once per lease;
				 * REQUEUE: the grace period is over */
	const char *why;        /* one sentence */
} themis_reclaim;

typedef struct themis_wait { /* a waiting job, best rank first; or a running one */
	uint32_t id, task;
	const char *why;        /* one sentence, printable ASCII: for the job's reason,
				 * or if it runs its comment */
} themis_wait;

typedef struct themis_directives {
	uint64_t seq;           /* grows with each new set, also over restarts of the core */
	uint32_t tick_ms;       /* how often the host should look for changes */
	const themis_grant *grants;
	uint32_t n_grants;
	const themis_reclaim *reclaims;
	uint32_t n_reclaims;
	const themis_wait *waits;
	uint32_t n_waits;
	const themis_wait *notes; /* of running jobs */
	uint32_t n_notes;
} themis_directives;

typedef struct themis_health {
	uint32_t connected;     /* 1: the core answered the last snapshot */
	uint32_t fallback;      /* 1: no core for longer than fallback_after: let GPU
				 * jobs flow as if Themis were not installed */
	uint64_t silent_ms;     /* how long the oldest unanswered snapshot has waited */
} themis_health;

/* ---- functions ------------------------------------------------------- */

/* themis_abi returns the THEMIS_ABI the library was built with. */
uint32_t themis_abi(void);

/* themis_open starts the shim: it attaches to a core or launches one, in the
 * background, again and again. Returns 0, or -1 with a message in err if the
 * options make no sense or the shim is open already. */
int themis_open(THEMIS_CONST themis_options *options, char *err, uint32_t err_len);

/* themis_observe hands a snapshot to the shim, replacing one not yet sent. A
 * host in which nothing changed need not call: the shim tells the core by
 * itself that the last one still holds, as often as the core's leases need it.
 * Returns 0, or -1 if the shim is not open. */
int themis_observe(THEMIS_CONST themis_snapshot *snapshot);

/* themis_latest returns the newest directives if their seq differs from
 * `seen`, else NULL. Release with themis_free. Directives older than
 * fallback_after are still returned: ask themis_pulse whether to obey. */
themis_directives *themis_latest(uint64_t seen);
void themis_free(themis_directives *directives);

/* The same two for hosts in which C structures are a burden: the snapshot comes
 * and the directives leave as themis.v1.Snapshot and themis.v1.Directives of
 * bridge/themis.proto, encoded. themis_observe_message returns -1, too, if the
 * bytes are no snapshot. Job ids are any text there. What
 * themis_latest_message returns is released with themis_free_message. */
int themis_observe_message(THEMIS_CONST void *snapshot, uint32_t len);
void *themis_latest_message(uint64_t seen, uint32_t *len);
void themis_free_message(void *directives);

/* themis_pulse reports the link to the core. Never fails. */
void themis_pulse(themis_health *out);

/* themis_hint checks the "themis: ..." hint in a job's comment. Returns 0 if
 * there is none or it is well formed; else -1 and err holds a message that
 * shows the right form. Cheap and lock-free: callable under the host's locks,
 * also before themis_open. */
int themis_hint(THEMIS_CONST char *comment, char *err, uint32_t err_len);

/* themis_close ends the shim and, if it launched the core, the core. */
void themis_close(void);

#ifdef __cplusplus
}
#endif
#endif
