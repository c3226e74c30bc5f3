/* SPDX-License-Identifier: Apache-2.0
 *
 * jni.c - the native methods of org.themis.yarn.Shim: Java's arrays to the
 * C ABI of themis.h and back. Nothing here waits for the core.
 *
 * Java threads call in; threads of the library never call into Java, which
 * would have to be attached for it: log lines wait here until the policy's
 * thread fetches them.
 */
//go:build jni

#define _GNU_SOURCE /* asprintf */
#include <jni.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "themis.h"

#define ERR_LEN 1024

/* ---- log lines ------------------------------------------------------- */

#define LINES 256 /* that wait; later ones are counted and dropped */

static struct {
	pthread_mutex_t lock;
	char *line[LINES]; /* the level as a digit, then the text */
	int count, dropped;
} waiting = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void keep_line(int level, const char *text)
{
	char *line = NULL;

	if (asprintf(&line, "%d%s", level, text) < 0)
		return;
	pthread_mutex_lock(&waiting.lock);
	if (waiting.count < LINES) {
		waiting.line[waiting.count++] = line;
		line = NULL;
	} else {
		waiting.dropped++;
	}
	pthread_mutex_unlock(&waiting.lock);
	free(line);
}

/* ---- bytes ------------------------------------------------------------ */

/* Text goes both ways as UTF-8 bytes: Java's own "modified UTF-8" is another
 * encoding. Returns NULL without memory, and "" for null. */
static char *text_of(JNIEnv *env, jbyteArray bytes)
{
	jsize len = bytes ? (*env)->GetArrayLength(env, bytes) : 0;
	char *text = malloc((size_t) len + 1);

	if (!text)
		return NULL;
	if (len)
		(*env)->GetByteArrayRegion(env, bytes, 0, len, (jbyte *) text);
	text[len] = '\0';
	return text;
}

static jbyteArray bytes_of(JNIEnv *env, const void *from, size_t len)
{
	jbyteArray bytes = (*env)->NewByteArray(env, (jsize) len);

	if (bytes)
		(*env)->SetByteArrayRegion(env, bytes, 0, (jsize) len, from);
	return bytes;
}

/* ---- native methods ----------------------------------------------------- */

JNIEXPORT jint JNICALL Java_org_themis_yarn_Shim_abi(JNIEnv *env, jclass class)
{
	(void) env;
	(void) class;
	return (jint) themis_abi();
}

JNIEXPORT jbyteArray JNICALL Java_org_themis_yarn_Shim_open(
	JNIEnv *env, jclass class, jbyteArray cluster, jbyteArray config,
	jbyteArray state, jbyteArray binary, jbyteArray socket, jint uid)
{
	char *text[] = { text_of(env, cluster), text_of(env, config),
			 text_of(env, state), text_of(env, binary),
			 text_of(env, socket) };
	themis_options options = {
		.host = "yarn",
		.cluster = text[0],
		.config = text[1],
		.state_dir = text[2],
		.binary = text[3],
		.socket = text[4],
		.owner_uid = (uint32_t) uid,
		.log = keep_line,
	};
	char err[ERR_LEN] = "";
	int rc = themis_open(&options, err, sizeof(err));

	(void) class;
	for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++)
		free(text[i]);
	return rc ? bytes_of(env, err, strlen(err)) : NULL;
}

JNIEXPORT jboolean JNICALL Java_org_themis_yarn_Shim_observe(
	JNIEnv *env, jclass class, jbyteArray snapshot)
{
	jsize len = (*env)->GetArrayLength(env, snapshot);
	jbyte *bytes = (*env)->GetByteArrayElements(env, snapshot, NULL);
	int rc;

	(void) class;
	if (!bytes)
		return JNI_FALSE;
	rc = themis_observe_message(bytes, (uint32_t) len);
	(*env)->ReleaseByteArrayElements(env, snapshot, bytes, JNI_ABORT);
	return rc == 0;
}

JNIEXPORT jbyteArray JNICALL Java_org_themis_yarn_Shim_latest(
	JNIEnv *env, jclass class, jlong seen)
{
	uint32_t len = 0;
	void *message = themis_latest_message((uint64_t) seen, &len);
	jbyteArray bytes;

	(void) class;
	if (!message)
		return NULL;
	bytes = bytes_of(env, message, len);
	themis_free_message(message);
	return bytes;
}

JNIEXPORT jlong JNICALL Java_org_themis_yarn_Shim_silence(JNIEnv *env,
							  jclass class)
{
	themis_health health = { 0 };

	(void) env;
	(void) class;
	themis_pulse(&health);
	return health.fallback ? (jlong) health.silent_ms : -1;
}

JNIEXPORT jbyteArray JNICALL Java_org_themis_yarn_Shim_check(
	JNIEnv *env, jclass class, jbyteArray hint)
{
	char *text = text_of(env, hint);
	char err[ERR_LEN] = "";
	int rc = text ? themis_hint(text, err, sizeof(err)) : 0;

	(void) class;
	free(text);
	return rc ? bytes_of(env, err, strlen(err)) : NULL;
}

/* The oldest line that waits, NULL if none does. */
JNIEXPORT jbyteArray JNICALL Java_org_themis_yarn_Shim_line(JNIEnv *env,
							    jclass class)
{
	char *line = NULL;
	jbyteArray bytes = NULL;

	(void) class;
	pthread_mutex_lock(&waiting.lock);
	if (waiting.count) {
		line = waiting.line[0];
		memmove(waiting.line, waiting.line + 1,
			(size_t) --waiting.count * sizeof(waiting.line[0]));
	} else if (waiting.dropped) {
		if (asprintf(&line, "0%d log lines were dropped",
			     waiting.dropped) < 0)
			line = NULL;
		waiting.dropped = 0;
	}
	pthread_mutex_unlock(&waiting.lock);
	if (line)
		bytes = bytes_of(env, line, strlen(line));
	free(line);
	return bytes;
}

JNIEXPORT void JNICALL Java_org_themis_yarn_Shim_close(JNIEnv *env,
						       jclass class)
{
	(void) env;
	(void) class;
	themis_close();
}
