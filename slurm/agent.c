/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * agent.c - libthemis_slurmctld.so: the thread in slurmctld that shows the
 * cluster to the core and brings its decisions back.
 *
 * A round: fetch directives; under read locks copy the jobs and nodes and note
 * which jobs differ from what the directives want; drop the locks; hand the
 * copy to libthemis.so; under the write lock change the jobs noted. No lock of
 * slurmctld is held while libthemis.so is called, and hooks never call it but
 * for themis_hint().
 *
 * The thread lives from the start of the priority plugin to its end, or, where
 * our priority plugin is not in use, from the first test of a GPU job to the
 * end of slurmctld. A standby controller has neither.
 */
#include <libgen.h>
#include <time.h>

#include "internal.h"

#ifndef THEMIS_BIN
#define THEMIS_BIN "/usr/bin/themis"
#endif
#define THEMIS_SOCKET "/run/themis/themis.sock"

#define POLL_MS 100
#define TICK_MIN_MS 200
#define TICK_DEFAULT_MS 1000
#define TICK_MAX_MS 10000
/* The core hears from us at least this often, and ranks and sentences are
 * brought up to date no more often. */
#define REFRESH_MS 5000
#define LOOK_SHARE 20

struct library library;

static struct {
	pthread_mutex_t lock; /* of what is not atomic here */
	pthread_cond_t wake;
	pthread_t thread;
	bool running;
	bool ended; /* do not start late: stopped, or it cannot be opened */
	enum { LIB_UNTRIED, LIB_READY, LIB_UNUSABLE } lib;
	atomic_bool stop, opened, fallback, priorities, governed;
} agent = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.wake = PTHREAD_COND_INITIALIZER,
};

/* The thread's own. */
static struct {
	uint64_t seq;
	uint32_t tick_ms;
	uint64_t sent_ms, refreshed_ms, scheduled_ms;
	uint64_t look_ms; /* what the last snapshot took */
	time_t built; /* when the last snapshot was begun */
	bool flipped; /* fallback was entered or left */
	struct worklist work;
} self;

/* ---- counters ---- */

static struct {
	const char *name;
	atomic_uint_fast64_t calls, total_ns, max_ns;
} counters[HOOK_COUNT] = {
	[HOOK_JOB_TEST] = { .name = "job_test" },
	[HOOK_PRIORITY] = { .name = "priority_set" },
	[HOOK_SUBMIT] = { .name = "job_submit" },
	[HOOK_READ_LOCK] = { .name = "agent_read_lock" },
	[HOOK_WRITE_LOCK] = { .name = "agent_write_lock" },
};

extern uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000000u + now.tv_nsec;
}

static uint64_t _clock_ms(void)
{
	return clock_ns() / 1000000u;
}

extern void hook_count(enum hook hook, uint64_t start_ns)
{
	uint64_t spent = clock_ns() - start_ns;
	uint_fast64_t max = atomic_load(&counters[hook].max_ns);

	atomic_fetch_add(&counters[hook].calls, 1);
	atomic_fetch_add(&counters[hook].total_ns, spent);
	while ((spent > max) &&
	       !atomic_compare_exchange_weak(&counters[hook].max_ns, &max,
					     spent))
		;
}

extern void hook_report(themis_hook *out)
{
	for (int i = 0; i < HOOK_COUNT; i++) {
		out[i].name = counters[i].name;
		out[i].calls = atomic_load(&counters[i].calls);
		out[i].total_ns = atomic_load(&counters[i].total_ns);
		out[i].max_ns = atomic_load(&counters[i].max_ns);
	}
}

static void _tested(uint64_t start_ns)
{
	hook_count(HOOK_JOB_TEST, start_ns);
}

/* ---- the library ---- */

static void _log(int level, const char *line)
{
	if (level <= 0)
		error("themis: %s", line);
	else if (level == 1)
		info("themis: %s", line);
	else
		debug("themis: %s", line);
}

static void *_sibling(const char *name)
{
	char path[PATH_MAX];
	const char *slash;
	Dl_info own;

	if (!dladdr(&counters, &own) || !(slash = strrchr(own.dli_fname, '/')))
		return NULL;
	snprintf(path, sizeof(path), "%.*s/%s", (int) (slash - own.dli_fname),
		 own.dli_fname, name);
	return dlopen(path, RTLD_LAZY | RTLD_NODELETE);
}

static bool _link(void *lib)
{
	struct { const char *name; void **into; } syms[] = {
		{ "themis_abi", (void **) &library.abi },
		{ "themis_open", (void **) &library.open },
		{ "themis_observe", (void **) &library.observe },
		{ "themis_latest", (void **) &library.latest },
		{ "themis_free", (void **) &library.free },
		{ "themis_pulse", (void **) &library.pulse },
		{ "themis_hint", (void **) &library.hint },
		{ "themis_close", (void **) &library.close },
	};

	for (size_t i = 0; i < sizeof(syms) / sizeof(syms[0]); i++) {
		if (!(*syms[i].into = dlsym(lib, syms[i].name)))
			return false;
	}
	return true;
}

/* Loads libthemis.so once per process. Under agent.lock. */
static bool _load(void)
{
	void *lib;
	uint32_t abi;

	if (agent.lib != LIB_UNTRIED)
		return agent.lib == LIB_READY;
	agent.lib = LIB_UNUSABLE;
	if (!(lib = _sibling("libthemis.so")) || !_link(lib)) {
		error("themis: GPU jobs are scheduled as without Themis: %s",
		      dlerror() ?: "no folder of our own");
		return false;
	}
	if ((abi = library.abi()) != THEMIS_ABI) {
		error("themis: GPU jobs are scheduled as without Themis: libthemis.so has ABI %u, the plugins need %u",
		      abi, THEMIS_ABI);
		return false;
	}
	agent.lib = LIB_READY;
	return true;
}

static char *_setting(const char *name, char *fallback)
{
	const char *value = getenv(name);

	if (!value || !value[0])
		return fallback;
	xfree(fallback);
	return xstrdup(value);
}

/* Opens the shim. Under agent.lock. */
static bool _open(void)
{
	char *conf = xstrdup(slurm_conf.slurm_conf), *folder = dirname(conf);
	char *config = _setting("THEMIS_CONFIG",
				xstrdup_printf("%s/themis.toml", folder));
	char *state = _setting("THEMIS_STATE",
			       xstrdup_printf("%s/themis",
					      slurm_conf.state_save_location));
	char *binary = _setting("THEMIS_BIN", xstrdup(THEMIS_BIN));
	char *socket = _setting("THEMIS_SOCKET", xstrdup(THEMIS_SOCKET));
	char err[1024] = "";
	themis_options options = {
		.host = "slurm",
		.cluster = slurm_conf.cluster_name,
		.config = config,
		.state_dir = state,
		.binary = binary,
		.socket = socket,
		.owner_uid = slurm_conf.slurm_user_id,
		.log = _log,
	};
	bool opened = !library.open(&options, err, sizeof(err));

	if (!opened)
		error("themis: GPU jobs are scheduled as without Themis: %s",
		      err);
	xfree(conf);
	xfree(config);
	xfree(state);
	xfree(binary);
	xfree(socket);
	return opened;
}

/* ---- a round ---- */

extern bool agent_governs(void)
{
	return atomic_load(&agent.opened) && !atomic_load(&agent.fallback);
}

extern bool agent_is_leaving(void)
{
	return slurmctld_config.shutdown_time &&
	       atomic_load(&agent.governed);
}

extern bool agent_owns_priorities(void)
{
	return atomic_load(&agent.priorities);
}

static void _check_pulse(void)
{
	themis_health health = { 0 };
	bool was = atomic_load(&agent.fallback);

	library.pulse(&health);
	if (!!health.fallback == was)
		return;
	atomic_store(&agent.fallback, !was);
	self.flipped = true;
	if (!was)
		error("themis: no answer from the core for %"PRIu64" s, GPU jobs are scheduled as without Themis until it is back",
		      health.silent_ms / 1000);
	else
		info("themis: the core is back and decides about GPU jobs again");
}

/* Returns true if what binds jobs changed. */
static bool _fetch(void)
{
	themis_directives *directives = library.latest(self.seq);

	_check_pulse();
	atomic_store(&agent.governed,
		     agent_governs() && (directives || self.seq));
	if (directives) {
		self.seq = directives->seq;
		if (directives->tick_ms)
			self.tick_ms = MIN(MAX(directives->tick_ms,
					       TICK_MIN_MS), TICK_MAX_MS);
		table_replace(directives);
	}
	return directives || self.flipped;
}

/* Has slurmctld changed anything since the last snapshot? Its stamps count
 * seconds, so a change in the very second of the snapshot counts again. */
static bool _slurm_changed(void)
{
	return (last_job_update >= self.built) ||
	       (last_node_update >= self.built) ||
	       (last_part_update >= self.built) ||
	       (last_resv_update >= self.built);
}

static void _observe(struct view *view)
{
	snapshot_finish(view);
	if (library.observe(&view->out))
		debug("themis: the shim took no snapshot");
	snapshot_free(view);
}

/* Notes the jobs to change, under read locks. */
static void _scan(bool everything)
{
	enum scan scan = everything ? SCAN_ALL : SCAN_URGENT;

	if (self.flipped && !agent_governs())
		scan = SCAN_RESET;
	self.flipped = false;
	apply_scan(&self.work, scan);
	if (everything)
		priority_memory_sweep();
}

static void _round(bool changed)
{
	slurmctld_lock_t locks = { .conf = READ_LOCK, .job = READ_LOCK,
				   .node = READ_LOCK, .part = READ_LOCK };
	uint64_t now = _clock_ms(), start;
	uint64_t silent = now - self.sent_ms;
	/* Looking costs slurmctld a read lock: at most one part in LOOK_SHARE of
	 * the time goes there, unless the tick says to look all the same. */
	uint64_t pause = MIN(self.tick_ms, LOOK_SHARE * self.look_ms);
	bool build = (silent >= REFRESH_MS) ||
		     ((silent >= pause) && _slurm_changed());
	bool everything = self.flipped ||
			  (now - self.refreshed_ms >= REFRESH_MS);
	struct view *view = NULL;

	if (!build && !changed && !everything)
		return;
	lock_slurmctld(locks);
	start = clock_ns();
	if (slurmctld_config.shutdown_time || !job_list || !node_record_count) {
		unlock_slurmctld(locks);
		return;
	}
	if (build) {
		self.built = time(NULL);
		view = snapshot_take();
	}
	_scan(everything);
	hook_count(HOOK_READ_LOCK, start);
	unlock_slurmctld(locks);

	if (view) {
		self.look_ms = (clock_ns() - start) / 1000000;
		self.sent_ms = now;
		_observe(view);
	}
	if (everything)
		self.refreshed_ms = now;
	apply_write(&self.work);
	if (self.work.granted &&
	    (changed || (now - self.scheduled_ms >= REFRESH_MS))) {
		self.scheduled_ms = now;
		schedule(false); /* now, not after batch_sched_delay */
	}
}

static void _sleep(uint32_t ms)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += ms * 1000000l;
	until.tv_sec += until.tv_nsec / 1000000000l;
	until.tv_nsec %= 1000000000l;
	slurm_mutex_lock(&agent.lock);
	if (!atomic_load(&agent.stop))
		pthread_cond_timedwait(&agent.wake, &agent.lock, &until);
	slurm_mutex_unlock(&agent.lock);
}

static void *_run(void *arg)
{
	(void) arg;
	memset(&self, 0, sizeof(self));
	self.tick_ms = TICK_DEFAULT_MS;
	while (!atomic_load(&agent.stop) && !slurmctld_config.shutdown_time) {
		bool changed = _fetch();

		_round(changed);
		apply_reclaims();
		if (changed)
			apply_notes();
		_sleep(POLL_MS);
	}
	atomic_store(&agent.opened, false);
	table_replace(NULL);
	library.close();
	xfree(self.work.ids);
	return NULL;
}

/* ---- start and stop ---- */

static void _start_locked(bool priorities)
{
	if (agent.running || !_load())
		return;
	if (!_open()) {
		agent.ended = true;
		return;
	}
	atomic_store(&agent.stop, false);
	atomic_store(&agent.fallback, false);
	atomic_store(&agent.priorities, priorities);
	atomic_store(&agent.opened, true);
	agent.running = true;
	slurm_thread_create(&agent.thread, _run, NULL);
	info("themis: deciding about GPU jobs%s",
	     priorities ? "" : ", but not their priority (PriorityType is not priority/themis)");
}

static void _start(bool priorities)
{
	slurm_mutex_lock(&agent.lock);
	agent.ended = false;
	_start_locked(priorities);
	slurm_mutex_unlock(&agent.lock);
}

extern void agent_start_late(void)
{
	if (atomic_load(&agent.opened))
		return;
	slurm_mutex_lock(&agent.lock);
	if (!agent.ended && (agent.lib != LIB_UNUSABLE))
		_start_locked(false);
	slurm_mutex_unlock(&agent.lock);
}

static void _stop(void)
{
	bool running;

	slurm_mutex_lock(&agent.lock);
	running = agent.running;
	agent.running = false;
	agent.ended = true;
	atomic_store(&agent.stop, true);
	pthread_cond_broadcast(&agent.wake);
	slurm_mutex_unlock(&agent.lock);
	if (running)
		pthread_join(agent.thread, NULL);
	atomic_store(&agent.priorities, false);
}

static void _saving(void)
{
	if (slurmctld_config.shutdown_time)
		_stop();
}

static int _hint(const char *comment, char *err, uint32_t err_len)
{
	uint64_t start = clock_ns();
	bool loaded;
	int rc = 0;

	slurm_mutex_lock(&agent.lock);
	loaded = _load();
	slurm_mutex_unlock(&agent.lock);
	if (loaded)
		rc = library.hint(comment, err, err_len);
	hook_count(HOOK_SUBMIT, start);
	return rc;
}

extern const struct themis_agent themis_agent_v2;
__attribute__((visibility("default")))
const struct themis_agent themis_agent_v2 = {
	.version = THEMIS_AGENT_VERSION,
	.start = _start,
	.stop = _stop,
	.saving = _saving,
	.admit = hook_admit,
	.unmark = slots_unmark,
	.plan = hook_plan,
	.priority = hook_priority,
	.factors = hook_factors,
	.hint = _hint,
	.tested = _tested,
	.clock_ns = clock_ns,
};
