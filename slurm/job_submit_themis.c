/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * job_submit/themis - refuses a job whose comment holds a malformed
 * "themis: ..." hint, with a message that shows the right form. It changes
 * nothing in a job, and has no opinion on comments without a hint.
 */
#include "agent.h"

/* What Slurm looks up by name; plugin.map lists the same. */
#pragma GCC visibility push(default)

const char plugin_name[] = "Themis job hint check";
const char plugin_type[] = "job_submit/themis";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

static const struct themis_agent *agent;

extern int init(void)
{
	agent = themis_agent(plugin_type);
	return SLURM_SUCCESS;
}

static bool _refused(const char *comment, char *err, uint32_t err_len)
{
	return agent && comment && agent->hint(comment, err, err_len);
}

extern int job_submit(job_desc_msg_t *job_desc, uint32_t submit_uid,
		      char **err_msg)
{
	char err[1024] = "";

	(void) submit_uid;
	if (!_refused(job_desc->comment, err, sizeof(err)))
		return SLURM_SUCCESS;
	if (err_msg) {
		xfree(*err_msg);
		*err_msg = xstrdup(err);
	}
	return EINVAL;
}

/* In 22.05 only the errno reaches the user of scontrol update ("Invalid
 * argument"); the text goes to the log. */
extern int job_modify(job_desc_msg_t *job_desc, job_record_t *job_ptr,
		      uint32_t submit_uid THEMIS_MODIFY_ERR_PARAM)
{
	char err[1024] = "";

	if (!_refused(job_desc->comment, err, sizeof(err)))
		return SLURM_SUCCESS;
	info("themis: refused a comment from uid %u for %pJ: %s",
	     submit_uid, job_ptr, err);
	themis_modify_say(err);
	return EINVAL;
}
