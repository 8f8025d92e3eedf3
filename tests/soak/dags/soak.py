# SPDX-License-Identifier: Apache-2.0
"""A run of 100 task instances. Nobody executes them: the pod player reports what a worker would."""

from datetime import timedelta

from airflow.providers.standard.sensors.python import PythonSensor
from airflow.sdk import DAG, task

# The tries that a fault burns must not decide a task instance's end, so there are more than are planned.
RETRIES = {"retries": 6, "retry_delay": timedelta(seconds=1)}

with DAG("soak", schedule=None, default_args=RETRIES) as dag:

    @task
    def plain(number: int) -> int:
        return number

    @task
    def retried(number: int) -> int:
        return number

    @task
    def deferred(number: int) -> int:
        return number

    plain.override(task_id="plain").expand(number=list(range(76)))
    retried.override(task_id="retried").expand(number=list(range(10)))
    deferred.override(task_id="deferred").expand(number=list(range(7)))
    PythonSensor.partial(
        task_id="rescheduled", python_callable=lambda number: number, mode="reschedule", poke_interval=1
    ).expand(op_args=[[number] for number in range(7)])
