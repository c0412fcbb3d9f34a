"""The batcher by itself: it knows callables, so these tests need no model, no store and no clock."""

import asyncio
import contextlib
import gc
import math
import time

import pytest

from service.ranking.batcher import RECENT, Batcher, BatcherStopped, Expired, Observers, QueueFull


class AuthGuard:
    """A process that records its batches and answers each when it is told to."""

    def __init__(self, *, open_from_the_start=False):
        self.batches = []
        self._free = asyncio.Semaphore(10**6 if open_from_the_start else 0)

    async def __call__(self, questions):
        """Ten times each question, once the gate is open."""
        self.batches.append(list(questions))
        await self._free.acquire()
        return [question * 10 for question in questions]

    def let_through(self, batches=1):
        """Open the gate for so many batches."""
        for _ in range(batches):
            self._free.release()


async def settle():
    """Let everything happen that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def running(process, *, max_batch=4, **options):
    """A started batcher, closed afterwards."""
    batcher = Batcher(process, **{"max_batch": max_batch, "max_waiting": 1000, **options})
    batcher.start()
    try:
        yield batcher
    finally:
        await batcher.close()


def ask(batcher, *questions):
    """One waiting task for each question."""
    return [asyncio.create_task(batcher.submit(question)) for question in questions]


def test_lone_question_leaves_at_once():
    """Idle, a question is processed within a few turns of the loop: there is no timer to wait for."""

    async def scenario():
        gate = AuthGuard(open_from_the_start=True)
        async with running(gate) as batcher:
            [task] = ask(batcher, 1)
            await settle()
            assert task.done()
            assert (task.result(), gate.batches) == (10, [[1]])

    asyncio.run(scenario())


def test_what_waits_becomes_the_next_batch():
    """Busy, questions gather; they leave together, first come first served, at most max_batch of them."""

    async def scenario():
        gate = AuthGuard()
        async with running(gate, max_batch=3, in_flight=1) as batcher:
            tasks = ask(batcher, 1)
            await settle()
            tasks += ask(batcher, *range(2, 7))
            await settle()
            assert gate.batches == [[1]]
            gate.let_through(3)
            assert await asyncio.gather(*tasks) == [10, 20, 30, 40, 50, 60]
            assert gate.batches == [[1], [2, 3, 4], [5, 6]]

    asyncio.run(scenario())


def test_two_batches_are_under_way_at_most():
    """A second batch is taken while the first computes, a third is not."""

    async def scenario():
        gate = AuthGuard()
        async with running(gate, max_batch=1) as batcher:
            tasks = ask(batcher, 1, 2, 3)
            await settle()
            assert gate.batches == [[1], [2]]
            gate.let_through(3)
            assert await asyncio.gather(*tasks) == [10, 20, 30]

    asyncio.run(scenario())


def test_departed_waiters_are_dropped():
    """A cancelled waiter is not processed, and takes no place in the batch."""

    async def scenario():
        gate = AuthGuard()
        async with running(gate, max_batch=2, in_flight=1) as batcher:
            first = ask(batcher, 1)
            await settle()
            second, third, fourth = ask(batcher, 2, 3, 4)
            await settle()
            second.cancel()
            gate.let_through(2)
            assert await asyncio.gather(*first, third, fourth) == [10, 30, 40]
            assert gate.batches == [[1], [3, 4]]

    asyncio.run(scenario())


def test_all_departed_leaves_nothing_to_do():
    """When everyone who waited has left, nothing is processed and the next question is."""

    async def scenario():
        gate = AuthGuard()
        async with running(gate, in_flight=1) as batcher:
            first = ask(batcher, 1)
            await settle()
            gone = ask(batcher, 2, 3)
            await settle()
            for task in gone:
                task.cancel()
            gate.let_through(2)
            await asyncio.gather(*first)
            assert await asyncio.gather(*ask(batcher, 4)) == [40]
            assert gate.batches == [[1], [4]]

    asyncio.run(scenario())


def test_leaving_during_processing_harms_nobody():
    """A waiter who leaves while its batch is under way costs the others nothing."""

    async def scenario():
        gate = AuthGuard()
        async with running(gate) as batcher:
            stays, leaves = ask(batcher, 1, 2)
            await settle()
            leaves.cancel()
            gate.let_through()
            assert await stays == 10

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["raises", "too few"])
def test_failed_batch_fails_its_own_waiters_only(fault):
    """An exception, or a wrong number of results, reaches that batch; the next one is served."""

    async def scenario():
        async def process(questions):
            if 1 in questions:
                if fault == "raises":
                    raise ZeroDivisionError
                return []
            return questions

        async with running(process, max_batch=2) as batcher:
            results = await asyncio.gather(*ask(batcher, 1, 2, 3, 4), return_exceptions=True)
            expected = ZeroDivisionError if fault == "raises" else RuntimeError
            assert [type(result) for result in results[:2]] == [expected, expected]
            assert results[2:] == [3, 4]
            assert batcher.alive

    asyncio.run(scenario())


def test_exception_among_the_results_is_one_waiters():
    """A result that is an exception is raised to its waiter alone."""

    async def scenario():
        async def process(questions):
            return [KeyError(question) if question == 2 else question for question in questions]

        async with running(process) as batcher:
            results = await asyncio.gather(*ask(batcher, 1, 2, 3), return_exceptions=True)
            assert results[0::2] == [1, 3]
            assert isinstance(results[1], KeyError)

    asyncio.run(scenario())


def test_death_of_the_task_fails_all_who_wait(caplog):
    """When the batcher's own task dies, waiters are told, nothing is taken any more, and the log says so."""

    async def scenario():
        gate = AuthGuard()
        broken = False

        def observe(_size):
            if broken:
                raise ZeroDivisionError

        async with running(gate, max_batch=1, in_flight=1, observers=Observers(on_batch=observe)) as batcher:
            served = ask(batcher, 1)
            await settle()
            waiting = ask(batcher, 2, 3)
            await settle()
            broken = True
            gate.let_through()
            results = await asyncio.wait_for(asyncio.gather(*served, *waiting, return_exceptions=True), 5)
            assert results[0] == 10
            assert [type(result) for result in results[1:]] == [BatcherStopped, BatcherStopped]
            assert not batcher.alive
            with pytest.raises(BatcherStopped):
                await batcher.submit(4)

    asyncio.run(scenario())
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]


def test_close_answers_what_waits():
    """Closing refuses new questions and serves those that were taken, under way or waiting."""

    async def scenario():
        gate = AuthGuard()
        batcher = Batcher(gate, max_batch=2, max_waiting=4, in_flight=1)
        assert not batcher.alive
        with pytest.raises(BatcherStopped):
            await batcher.submit(0)
        batcher.start()
        tasks = ask(batcher, 1, 2, 3)
        await settle()
        closing = asyncio.create_task(batcher.close())
        await settle()
        assert not batcher.alive
        with pytest.raises(BatcherStopped):
            await batcher.submit(4)
        assert not closing.done()
        gate.let_through(2)
        assert await asyncio.gather(*tasks) == [10, 20, 30]
        await asyncio.wait_for(closing, 5)

    asyncio.run(scenario())


def test_close_when_idle():
    """Closing a batcher that has nothing to do, twice, ends at once."""

    async def scenario():
        batcher = Batcher(AuthGuard(), max_batch=2, max_waiting=4)
        batcher.start()
        await asyncio.wait_for(batcher.close(), 5)
        await asyncio.wait_for(batcher.close(), 5)
        assert not batcher.alive

    asyncio.run(scenario())


def test_observers_are_told():
    """Sizes, waits and depths are those of what happened."""

    async def scenario():
        sizes: list[int] = []
        waits: list[float] = []
        depths: list[int] = []
        observers = Observers(on_batch=sizes.append, on_wait=waits.append, on_depth=depths.append)
        gate = AuthGuard()
        async with running(gate, max_batch=2, in_flight=1, observers=observers) as batcher:
            tasks = ask(batcher, 1)
            await settle()
            tasks += ask(batcher, 2, 3, 4)
            await settle()
            gate.let_through(3)
            await asyncio.gather(*tasks)
        assert sizes == [1, 2, 1]
        assert len(waits) == 4
        assert min(waits) >= 0
        assert max(depths) == 3
        assert depths[-1] == 0

    asyncio.run(scenario())


def test_thousand_questions_are_each_answered_once():
    """Under load with random departures, every other question gets its own answer."""

    async def scenario():
        async def process(questions):
            await asyncio.sleep(0)
            return [question * 10 for question in questions]

        async with running(process, max_batch=7) as batcher:
            tasks = []
            for start in range(0, 1000, 50):
                tasks += ask(batcher, *range(start, start + 50))
                await asyncio.sleep(0)
                for task in tasks[start : start + 50 : 9]:
                    task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for question, result in enumerate(results):
                assert result == question * 10 or (
                    question % 50 % 9 == 0 and isinstance(result, asyncio.CancelledError)
                )
            assert sum(isinstance(result, int) for result in results) >= 1000 - 20 * 6

    asyncio.run(scenario())


def ask_until(batcher, expires_s, *questions):
    """One waiting task for each question, all with one deadline."""
    return [asyncio.create_task(batcher.submit(question, expires_s=expires_s)) for question in questions]


async def outcomes(*tasks):
    """The result of each, or the type of its exception."""
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
    return [type(result) if isinstance(result, Exception) else result for result in results]


def test_full_queue_takes_nothing_more():
    """Who finds as many waiting as may is told at once, and whoever leaves makes room."""

    async def scenario():
        gate = AuthGuard()
        depths: list[int] = []
        async with running(
            gate, max_batch=2, max_waiting=3, in_flight=1, observers=Observers(on_depth=depths.append)
        ) as batcher:
            tasks = ask(batcher, 1)
            await settle()
            tasks += ask(batcher, 2, 3, 4)
            await settle()
            assert await outcomes(*ask(batcher, 5)) == [QueueFull]
            tasks.pop().cancel()
            await settle()
            assert depths[-1] == 2
            tasks += ask(batcher, 6)
            gate.let_through(9)
            assert await outcomes(*tasks) == [10, 20, 30, 60]
            assert gate.batches == [[1], [2, 3], [6]]

    asyncio.run(scenario())


def test_late_question_is_not_taken(clock):
    """Whose time is over when it comes does not even wait."""

    async def scenario():
        gate = AuthGuard(open_from_the_start=True)
        async with running(gate, clock=clock) as batcher:
            assert await outcomes(*ask_until(batcher, clock.now_s, 1)) == [Expired]
            assert await outcomes(*ask_until(batcher, clock.now_s + 60, 2)) == [20]
            assert gate.batches == [[2]]

    asyncio.run(scenario())


def test_expired_while_it_waits_is_told_in_time_and_not_processed():
    """The alarm does not wait for the batch before; the queue has room again, and the rest is processed."""

    async def scenario():
        gate = AuthGuard()
        async with running(gate, max_batch=2, max_waiting=2, in_flight=1) as batcher:
            first = ask(batcher, 1)
            await settle()
            hasty = ask_until(batcher, time.perf_counter() + 0.02, 2, 3)
            assert await outcomes(*hasty) == [Expired, Expired]
            assert gate.batches == [[1]]
            patient = ask(batcher, 4)
            gate.let_through(2)
            assert await outcomes(*first, *patient) == [10, 40]
            assert gate.batches == [[1], [4]]

    asyncio.run(scenario())


def test_expired_is_dropped_though_its_alarm_is_late(clock):
    """After the loop stood still, the clock decides when a batch is taken, and again before the reply."""

    async def scenario():
        gate = AuthGuard()
        async with running(gate, max_batch=2, in_flight=1, clock=clock) as batcher:
            tasks = ask_until(batcher, clock.now_s + 50, 1)
            await settle()
            tasks += ask_until(batcher, clock.now_s + 60, 2)
            tasks += ask_until(batcher, clock.now_s + 90, 3)
            await settle()
            clock.now_s += 70
            gate.let_through(2)
            assert await outcomes(*tasks) == [Expired, Expired, 30]
            assert gate.batches == [[1], [3]]

    asyncio.run(scenario())


def test_who_cannot_be_answered_in_time_makes_way(clock):
    """With less time left than batches took, but for a single stall, a question yields to those that have it."""

    async def scenario():
        gate = AuthGuard()
        async with running(gate, max_batch=2, in_flight=1, clock=clock) as batcher:
            for took_s, question in ((10, 1), (500, 2)):  # a stall says nothing
                [task] = ask(batcher, question)
                await settle()
                clock.now_s += took_s
                gate.let_through()
                assert await task == 10 * question
            busy = ask(batcher, 3)
            await settle()
            clock.now_s += 20
            hopeless = ask_until(batcher, clock.now_s + 19, 4)
            hopeful = ask_until(batcher, clock.now_s + 21, 5)
            await settle()
            gate.let_through(2)
            assert await outcomes(*busy, *hopeless, *hopeful) == [30, Expired, 50]
            assert gate.batches[2:] == [[3], [5]]

    asyncio.run(scenario())


def test_somebody_tries_even_if_nobody_has_hope(clock):
    """When all have less time than batches took, the newest are processed: it shows that batches are quick again."""

    async def scenario():
        gate = AuthGuard()
        async with running(gate, max_batch=2, in_flight=1, clock=clock) as batcher:
            for question in range(RECENT):
                [task] = ask(batcher, question)
                await settle()
                clock.now_s += 100
                gate.let_through()
                await task
            busy = ask(batcher, 50)
            await settle()
            clock.now_s += 100
            tasks = ask_until(batcher, clock.now_s + 60, 51, 52, 53)
            await settle()
            gate.let_through(2)
            assert await outcomes(*busy, *tasks) == [500, Expired, 520, 530]
            [task] = ask_until(batcher, clock.now_s + 60, 54)
            gate.let_through()
            assert await outcomes(task) == [540]

    asyncio.run(scenario())


async def gather_many(batcher, expires_s, *questions):
    """What `submit_many` gives for questions with one deadline: results, or the types of exceptions."""
    async with contextlib.aclosing(batcher.submit_many([(question, expires_s) for question in questions])) as pairs:
        answered = [pair async for pair in pairs]
    assert [question for question, _ in answered] == list(questions)
    return [type(result) if isinstance(result, Exception) else result for _, result in answered]


def test_many_let_a_lone_question_go_first():
    """They fill what is left of a batch, though they came before, and need no room in the queue."""

    async def scenario():
        gate = AuthGuard()
        async with running(gate, max_batch=2, max_waiting=1, in_flight=1) as batcher:
            first = ask(batcher, 1)
            await settle()
            many = asyncio.create_task(gather_many(batcher, math.inf, 2, 3, 4))
            await settle()
            lone = ask(batcher, 5)
            await settle()
            gate.let_through(3)
            assert await outcomes(*first, *lone) == [10, 50]
            assert await many == [20, 30, 40]
            assert gate.batches == [[1], [5, 2], [3, 4]]

    asyncio.run(scenario())


def test_many_wait_as_long_as_they_may():
    """A queue that stays full costs them their deadline only, which they are told in time."""

    async def scenario():
        gate = AuthGuard()
        depths: list[int] = []
        observers = Observers(on_depth=depths.append)
        async with running(gate, max_batch=2, max_waiting=2, in_flight=1, observers=observers) as batcher:
            busy = ask(batcher, 1)
            await settle()
            busy += ask(batcher, 2, 3)
            await settle()
            assert await gather_many(batcher, time.perf_counter() + 0.02, 4, 5) == [Expired, Expired]
            assert max(depths) == 4
            assert depths[-1] == 2
            gate.let_through(9)
            assert await outcomes(*busy) == [10, 20, 30]
            assert gate.batches == [[1], [2, 3]]
            assert await gather_many(batcher, time.perf_counter(), 6) == [Expired]
        assert await gather_many(batcher, math.inf, 7) == [BatcherStopped]

    asyncio.run(scenario())


def test_who_asked_for_many_may_leave(caplog):
    """What is not answered then is not processed, and no failure that nobody looked at is logged."""

    async def scenario():
        async def process(questions):
            batches.append(questions)
            await free.acquire()
            return [KeyError() for _ in questions]

        batches: list[list[int]] = []
        free = asyncio.Semaphore(1)
        async with running(process, max_batch=2, in_flight=1) as batcher:
            async with contextlib.aclosing(batcher.submit_many([(number, math.inf) for number in range(6)])) as pairs:
                question, result = await anext(pairs)
                assert (question, type(result)) == (0, KeyError)
                await settle()
                assert batches == [[0, 1], [2, 3]]
            free.release()
            await settle()
            assert batches == [[0, 1], [2, 3]]

    asyncio.run(scenario())
    gc.collect()
    assert caplog.records == []
