"""A stream of ten digits, one class at a time, and what the learner knows after each of them."""

import onebyone

data = onebyone.load("digits")
stream = onebyone.class_incremental(data.train_y, data.num_classes, classes_per_task=1)
learner = onebyone.create("supbyol", data.spec, memory_per_class=20)

for task in stream.tasks:
    for index in task.batches(10):
        learner.observe(data.train_x[index], data.train_y[index])
    met = learner.observed[data.test_y]  # the test samples of the classes met so far
    right = (learner.predict(data.test_x[met]) == data.test_y[met]).float().mean()
    print(f"after class {task.classes[0]}: {100 * float(right):5.1f} % of {int(learner.observed.sum())} classes")
