"""Ten digits, one class at a time: the accuracy after each."""

from onebyone import class_incremental, create, load

data = load("digits")
stream = class_incremental(data.train_y, data.num_classes)
learner = create("supbyol", data.spec, memory_per_class=20)

for task in stream.tasks:
    for index in task.batches(10):
        learner.observe(data.train_x[index], data.train_y[index])
    # Evaluate on the test samples of the classes seen so far.
    seen = learner.observed[data.test_y]
    right = learner.predict(data.test_x[seen]) == data.test_y[seen]
    percent = 100 * float(right.float().mean())
    classes = int(learner.observed.sum())
    print(
        f"after class {task.classes[0]}:",
        f"{percent:5.1f} % of {classes} classes",
    )
